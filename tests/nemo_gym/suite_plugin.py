"""pytest plugin: a shipped suite, run on another class than the one it means to test, which NeMo Gym's `run_webserver` would have made a participant of.

`--embed module:Class` replaces the class in its module before the suite imports it. Each server made of it has the `checkpoint:` block of `--coordinator`, and
its app the gate. Suites that call handlers build no app: theirs is built, and served, when the server is. Those that build one talk to it through TestClient,
which then runs its lifespan, so that the participant is admitted by the coordinator before the suite's first request. `--counted FILE` is how many were.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastapi.testclient
import pytest
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from omegaconf import DictConfig, OmegaConf

from gymckpt.nemo_gym import make_participant

StockClient = fastapi.testclient.TestClient
NAMES = (f"suite-{number}" for number in itertools.count(1))
ADMITTED: list[str] = []
OPEN = contextlib.ExitStack()


class ServingClient(StockClient):
    """With the app's lifespan, until the test ends."""

    def __init__(self, app: Any, *words: Any, **settings: Any) -> None:
        super().__init__(app, *words, **settings)
        OPEN.enter_context(self)
        participant = app.state.gymckpt
        assert self.portal is not None
        self.portal.call(participant.open_gate)
        assert participant.enabled
        assert participant.started
        ADMITTED.append(str(participant.id))


def embedded(server_class: Any, coordinator: str) -> Any:
    """What `--embed` puts into the place of the class. An environment server takes no part in checkpoints: it gets the block alone."""
    takes_part = issubclass(server_class, SimpleResourcesServer | SimpleResponsesAPIAgent)

    class Embedded(make_participant(server_class) if takes_part else server_class):  # type: ignore[misc]
        def __init__(self, **data: Any) -> None:
            super().__init__(**data)
            self.config.name = self.config.name or next(NAMES)  # a participant has a name
            self.server_client.global_config_dict = with_block(self.server_client, coordinator)
            if isinstance(self, SimpleResourcesServer):
                ServingClient(self.setup_webserver())

        def setup_webserver(self) -> Any:
            self.server_client.global_config_dict = with_block(self.server_client, coordinator)  # suites replace it
            app = super().setup_webserver()
            self.setup_liveness(app)
            return app

    Embedded.__name__, Embedded.__qualname__ = server_class.__name__, server_class.__qualname__
    return Embedded


def with_block(client: Any, coordinator: str) -> Any:
    """The client's configuration, or none where it is a mock without one, with the block."""
    given, block = getattr(client, "global_config_dict", {}), {"checkpoint": {"coordinator": coordinator}}
    return OmegaConf.merge(given, block) if isinstance(given, DictConfig) else {**given, **block}


def pytest_addoption(parser: pytest.Parser) -> None:
    for option in ("--embed", "--coordinator", "--counted"):
        parser.addoption(option, required=True)


def pytest_configure(config: pytest.Config) -> None:
    module, _, name = config.getoption("--embed").partition(":")
    found = importlib.import_module(module)
    setattr(found, name, embedded(getattr(found, name), config.getoption("--coordinator")))
    fastapi.testclient.TestClient = ServingClient  # type: ignore[misc]


def pytest_unconfigure(config: pytest.Config) -> None:
    Path(config.getoption("--counted")).write_text(str(len(ADMITTED)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    try:
        return (yield)
    finally:
        OPEN.close()
