"""Embedded servers inside the test's own process and loop, built in the order in which NeMo Gym's `run_webserver` builds them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

from gymckpt.nemo_gym import make_participant


def made(server_class: Any, name: str, configuration: dict[str, Any], **settings: Any) -> Any:
    """A server of this very class."""
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=9),
        global_config_dict=OmegaConf.create(configuration),
    )
    place = {"host": "127.0.0.1", "port": 9, "entrypoint": "app.py", "domain": "agent"}
    config = server_class.model_fields["config"].annotation(**{**place, **settings}, name=name)
    return server_class(config=config, server_client=client)


def build(server_class: Any, name: str, configuration: dict[str, Any], **settings: Any) -> Any:
    """The app of one participant."""
    server = made(make_participant(server_class), name, configuration, **settings)
    app = server.setup_webserver()
    if getattr(server.config, "expose_tools_over_mcp", False):
        from nemo_gym.mcp_auto_exposure import maybe_auto_expose

        maybe_auto_expose(server, app)
    server.setup_liveness(app)
    return app


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The app with its lifespan; the client keeps cookies as browsers do."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gym", timeout=30.0) as client,
    ):
        yield client
