"""Who calls: read before NeMo Gym's path prefix `/ng-rollout/<id>[/training-token-capture]` is taken off."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gymckpt.errors import InvalidField
from gymckpt.participant import Call, identify
from servers.http.refusals import refusal

_PREFIX = re.compile(r"/ng-rollout/[A-Za-z0-9][A-Za-z0-9._-]*(?:/training-token-capture)?(?=/)")
_SCOPE_KEY = "gymckpt.call"


class Identified:
    """ASGI middleware, the innermost: notes the call's identity for `call_of`, then lets one route serve both forms."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope = {**scope, _SCOPE_KEY: identify(scope)}
            except InvalidField as error:
                await refusal(error)(scope, receive, send)
                return
            found = _PREFIX.match(scope["path"])
            if found:
                path = scope["path"][found.end() :]
                scope |= {"path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


def call_of(request: Request) -> Call:
    """The identity of the call that `request` is."""
    call = request.scope[_SCOPE_KEY]
    assert isinstance(call, Call)
    return call
