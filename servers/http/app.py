"""The frame of every server: health routes, metrics, refusals, and the order of the middleware."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI

from gymckpt.errors import GymckptError
from gymckpt.participant import AdmissionMiddleware, ResourcesParticipant
from servers.http.aggregate import aggregate
from servers.http.cookies import SessionCookies
from servers.http.identity import Identified
from servers.http.refusals import answer_refusal

HEALTH_ROUTES = ("/", "/health", "/healthz", "/livez", "/readyz")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_app(
    lifespan: Lifespan, *, cookie: str | None = None, admission: ResourcesParticipant | None = None
) -> FastAPI:
    """An app with the routes that all servers have.

    `cookie` names and signs the session cookie (None: the server keeps no sessions); `admission` is the participant
    whose gate all other routes stand behind. What is added last runs first: session, admission, identity, route.
    """
    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.add_middleware(Identified)
    if admission is not None:
        app.add_middleware(AdmissionMiddleware, participant=admission)
    if cookie is not None:
        app.add_middleware(SessionCookies, key=cookie)
    app.add_exception_handler(GymckptError, answer_refusal)
    for route in HEALTH_ROUTES:
        app.add_api_route(route, health, methods=["GET"])
    app.add_api_route("/aggregate_metrics", aggregate_metrics, methods=["POST"])
    return app


async def health() -> dict[str, str]:
    """The process is up; says nothing about its participant, which has a health service of its own."""
    return {"status": "ok"}


async def aggregate_metrics(body: dict[str, Any]) -> dict[str, Any]:
    return aggregate(body["verify_responses"])
