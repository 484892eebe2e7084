"""A NeMo Gym server class as a participant: three hooks of NeMo Gym are overridden, nothing of it is edited or replaced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar

from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from nemo_gym.base_responses_api_model import SimpleResponsesAPIModel
from starlette.middleware import Middleware

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.adapters import Adapter, adapter_of
from gymckpt.nemo_gym.agents import GymAgent, Presence
from gymckpt.nemo_gym.gate import Gate
from gymckpt.nemo_gym.identity import Identity
from gymckpt.nemo_gym.participants import SEED_ROUTES, GymModel, GymResources, refuse_workers
from gymckpt.nemo_gym.settings import Settings
from gymckpt.participant.asgi import Severing
from gymckpt.participant.base import Participant

if TYPE_CHECKING:
    from fastapi import FastAPI

    class _Server:
        config: Any
        server_client: Any

        def setup_webserver(self) -> FastAPI: ...
        def setup_liveness(self, app: FastAPI) -> None: ...
        def setup_cancellation_middleware(self, app: FastAPI) -> None: ...
        def get_session_middleware_key(self) -> str: ...
        def rollout_id_from_run(self, body: Any) -> str | None: ...
        def gymckpt_adapter(self) -> Adapter[Any, Any]: ...

else:
    _Server = object

S = TypeVar("S", bound=type)


class Participation(_Server):
    """Stands before the server class. The participant lives in `app.state.gymckpt`; without a `checkpoint:` block there is none."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        settings = Settings.of(self.server_client.global_config_dict)
        if settings is None:
            return app
        settings.load_adapters()
        participant = _participant(self)
        app.state.gymckpt = participant
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
            serving = participant.serving(
                listen=settings.listen, coordinator=settings.coordinator, store=settings.store
            )
            async with inner(app) as state, serving:
                yield state

        app.router.lifespan_context = lifespan
        return app

    def setup_liveness(self, app: FastAPI) -> None:
        """The last hook before the app starts, and after the tools were exposed over MCP, which accepts no middleware but NeMo Gym's own."""
        super().setup_liveness(app)
        participant = getattr(app.state, "gymckpt", None)
        if isinstance(participant, GymResources):
            identity = Identity(self.get_session_middleware_key(), SEED_ROUTES)
            app.user_middleware.append(Middleware(Gate, participant=participant, identity=identity))
        elif isinstance(participant, GymAgent):
            captured = self.rollout_id_from_run
            app.user_middleware.append(Middleware(Presence, participant=participant, captured=captured))

    def setup_cancellation_middleware(self, app: FastAPI) -> None:
        """The last of the middleware: what is inside of it answers cancelled calls with an error, which an agent would give to the model."""
        super().setup_cancellation_middleware(app)
        participant = getattr(app.state, "gymckpt", None)
        if participant is not None:
            app.add_middleware(Severing, participant=participant)


def make_participant(server_class: S, adapter: type[Adapter[Any, Any]] | None = None) -> S:
    """`server_class` as a participant, to be run with its own `run_webserver()`; without a `checkpoint:` block it is what it was.

    Its name stays, because NeMo Gym makes the name of the session cookie and its secret of it. `adapter` wins over the declared one. Raises InvalidField for
    any other class: environment servers take no part.
    """
    if not issubclass(server_class, SimpleResourcesServer | SimpleResponsesAPIModel | SimpleResponsesAPIAgent):
        raise InvalidField(
            f"{server_class.__name__} is no SimpleResourcesServer, SimpleResponsesAPIModel or SimpleResponsesAPIAgent: only these can be participants",
            field="server_class",
        )

    def gymckpt_adapter(self: Any) -> Adapter[Any, Any]:
        return (adapter or adapter_of(server_class))(self)

    members = {
        "__module__": server_class.__module__,
        "__qualname__": server_class.__qualname__,
        "gymckpt_adapter": gymckpt_adapter,
    }
    derived: S = type(server_class)(server_class.__name__, (Participation, server_class), members)
    return derived


def _participant(server: Participation) -> Participant:
    name, workers = server.config.name, server.config.num_workers
    worker = str(os.getpid()) if workers and workers > 1 else "0"
    if isinstance(server, SimpleResponsesAPIModel):
        return GymModel(name, worker=worker)
    if isinstance(server, SimpleResponsesAPIAgent):
        return GymAgent(name, worker=worker)
    refuse_workers(name, workers)
    return GymResources(name, server.gymckpt_adapter())
