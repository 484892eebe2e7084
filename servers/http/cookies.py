"""Session cookies as NeMo Gym signs them.

Name and signing secret are one public text, `<server class>___<instance name>`, so a restored server accepts the
cookies of the process before it. The value is base64 of a JSON object with `session_id`, signed and stamped.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

from itsdangerous import BadSignature, TimestampSigner
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_AGE = 14 * 24 * 3600


def cookie_key(server_class: str, instance: str) -> str:
    """Name and secret of an instance's session cookie."""
    return f"{server_class}___{instance}"


def sign(session: Mapping[str, Any], key: str) -> str:
    """The cookie value of `session`, stamped now."""
    return TimestampSigner(key).sign(base64.b64encode(json.dumps(session).encode())).decode()


def unsign(value: str, key: str) -> dict[str, Any]:
    """The session in a cookie value; empty when it was not signed with `key`, is too old or holds no object."""
    try:
        session = json.loads(base64.b64decode(TimestampSigner(key).unsign(value, max_age=MAX_AGE)))
    except (BadSignature, binascii.Error, ValueError):
        return {}
    return session if isinstance(session, dict) else {}


def cookies_of(set_cookie: list[str]) -> dict[str, str]:
    """Name -> value of Set-Cookie headers."""
    found: dict[str, str] = {}
    for header in set_cookie:
        found.update({name: morsel.value for name, morsel in SimpleCookie(header).items()})
    return found


def cookie_header(cookies: Mapping[str, str]) -> str:
    """The Cookie header that carries `cookies`."""
    return "; ".join(f"{name}={value}" for name, value in sorted(cookies.items()))


class SessionCookies:
    """ASGI middleware: `scope["session"]` is the caller's session, a new one without a valid cookie.

    Every answer carries the cookie again with a new stamp, whatever its status: a session lives as long as it is used.
    """

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        session = unsign(cookie_parser(Headers(scope=scope).get("cookie", "")).get(self.key, ""), self.key)
        session.setdefault("session_id", str(uuid.uuid4()))
        scope["session"] = session

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Cookie")
                headers.append("Set-Cookie", self._set_cookie(session))
            await send(message)

        await self.app(scope, receive, send_with_cookie)

    def _set_cookie(self, session: Mapping[str, Any]) -> str:
        return f"{self.key}={sign(session, self.key)}; path=/; Max-Age={MAX_AGE}; httponly; samesite=lax"
