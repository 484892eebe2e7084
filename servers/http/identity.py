"""Who calls, and the path prefix of NeMo Gym that may say so: `/ng-rollout/<id>[/training-token-capture]/<route>`."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from gymckpt.participant import Call, current_call

_PREFIX = re.compile(r"/ng-rollout/[A-Za-z0-9][A-Za-z0-9._-]*(?:/training-token-capture)?(?=/)")


class RolloutPrefix:
    """ASGI middleware, the innermost: takes the prefix off, so that one route serves both forms. Admission, which runs
    outside, has read it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = _PREFIX.match(scope["path"])
            if found:
                path = scope["path"][found.end() :]
                scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


def this_call() -> Call:
    """The identity of the call that is being served. Raises RuntimeError outside of one."""
    call = current_call()
    if call is None:
        raise RuntimeError("no call is being served here: the admission middleware is missing")
    return call
