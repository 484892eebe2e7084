"""The frame of every server: health routes, metrics, refusals, and the order of the middleware."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI

from gymckpt.errors import GymckptError
from gymckpt.participant import AdmissionMiddleware, Participant
from servers.http.aggregate import aggregate
from servers.http.cookies import SessionCookies
from servers.http.identity import RolloutPrefix
from servers.http.refusals import CalledServerFailed, answer_failure, answer_refusal

HEALTH_ROUTES = ("/", "/health", "/healthz", "/livez", "/readyz")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def build_app(lifespan: Lifespan, participant: Participant, *, cookie: str | None = None) -> FastAPI:
    """An app with the routes that all servers have, behind the gate of `participant`.

    `cookie` names and signs the session cookie (None: the server keeps no sessions). What is added last runs first:
    session, admission, prefix, route.
    """
    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.add_middleware(RolloutPrefix)
    app.add_middleware(AdmissionMiddleware, participant=participant)
    if cookie is not None:
        app.add_middleware(SessionCookies, key=cookie)
    app.add_exception_handler(GymckptError, answer_refusal)
    app.add_exception_handler(CalledServerFailed, answer_failure)
    for route in HEALTH_ROUTES:
        app.add_api_route(route, health, methods=["GET"])
    app.add_api_route("/aggregate_metrics", aggregate_metrics, methods=["POST"])
    return app


async def health() -> dict[str, str]:
    """The process is up; says nothing about its participant, which has a health service of its own."""
    return {"status": "ok"}


async def aggregate_metrics(body: dict[str, Any]) -> dict[str, Any]:
    return aggregate(body["verify_responses"])
