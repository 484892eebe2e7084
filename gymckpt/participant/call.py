"""Identity of one call on the data plane: who it is for, as its headers, its path and its session say."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from gymckpt.core.ids import Episode, check_id
from gymckpt.errors import InvalidField

EPISODE_HEADER = "x-gymckpt-episode"
SESSION_HEADER = "x-gymckpt-session"
REQUEST_ID_HEADER = "x-gymckpt-request-id"
WITHIN_HEADER = "x-gymckpt-within"
CONTINUE_HEADER = "x-gymckpt-continue"
REVISION_HEADER = "x-gymckpt-revision"
REASON_HEADER = "x-gymckpt-reason"
VERIFY_HEADER = "x-gymckpt-verify"
RESTART_HEADER = "x-gymckpt-restart"
MAX_KEY = 256  # characters of a session key or a request id
MAX_EPISODE = 137  # characters of the longest id, with the longest attempt

_PREFIX = "/ng-rollout/"
_CAPTURE = "/training-token-capture"  # may follow the rollout in the prefix

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """What a call says of itself. `route` is the path without NeMo Gym's rollout prefix; `continues` is the controller's word that it continues.

    `session_is_new`: the session middleware made the session up for this call, the client has not seen it yet.
    """

    method: str
    route: str
    episode: Episode | None = None
    session: str | None = None
    request_id: str | None = None
    within: Episode | None = None
    continues: bool = False
    session_is_new: bool = False

    @property
    def key(self) -> str | None:
        """Key of the session: the one that is named, else the rollout's own; None for a call that names neither."""
        if self.session is not None:
            return self.session
        return self.episode.rollout_id if self.episode is not None else None


_current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("gymckpt_call", default=None)


def current_call() -> Call | None:
    """The call that this task serves, or None outside the admission middleware."""
    return _current.get()


def set_current_call(call: Call | None) -> contextvars.Token[Call | None]:
    return _current.set(call)


def reset_current_call(token: contextvars.Token[Call | None]) -> None:
    _current.reset(token)


def identify(scope: Scope) -> Call:
    """Reads an ASGI scope: the `x-gymckpt-*` headers, the path prefix `/ng-rollout/<episode>`, and the session that a session middleware decoded.

    The header wins over the prefix; two that disagree are refused. Raises InvalidField.
    """
    headers = _headers(scope)
    prefixed, route = _split_prefix(scope["path"])
    episode = _episode(headers, EPISODE_HEADER)
    if prefixed is not None and episode is not None and prefixed != episode:
        raise InvalidField(
            f"{EPISODE_HEADER} says {episode}, the path prefix says {prefixed}; send one of them", field=EPISODE_HEADER
        )
    named = headers.get(SESSION_HEADER)
    session = named or (scope.get("session") or {}).get("session_id")
    continues = headers.get(CONTINUE_HEADER, "0")
    if continues not in ("0", "1"):
        raise InvalidField(f"{CONTINUE_HEADER} must be 1 or 0, got {continues!r}", field=CONTINUE_HEADER)
    return Call(
        method=scope["method"],
        route=route,
        episode=episode or prefixed,
        session=_key(session, SESSION_HEADER),
        request_id=_key(headers.get(REQUEST_ID_HEADER), REQUEST_ID_HEADER),
        within=_episode(headers, WITHIN_HEADER),
        continues=continues == "1",
        session_is_new=named is None
        and session is not None
        and not any(name == b"cookie" for name, _ in scope["headers"]),
    )


def _headers(scope: Scope) -> Mapping[str, str]:
    """Our headers. Raises InvalidField for one that comes twice with two values."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name.startswith(b"x-gymckpt-"):
            key, text = name.decode("latin-1"), value.decode("latin-1")
            if found.setdefault(key, text) != text:
                raise InvalidField(f"{key} says both {found[key][:80]!r} and {text[:80]!r}; send it once", field=key)
    return found


def _split_prefix(path: str) -> tuple[Episode | None, str]:
    if not path.startswith(_PREFIX):
        return None, path
    text, slash, rest = path[len(_PREFIX) :].partition("/")
    return _parsed(text, "path prefix"), (slash + rest).removeprefix(_CAPTURE)


def _episode(headers: Mapping[str, str], name: str) -> Episode | None:
    text = headers.get(name)
    return _parsed(text, name) if text is not None else None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str, field: str) -> Episode:
    """Raises InvalidField naming the header or the prefix, whatever part of the episode is wrong."""
    try:
        return Episode.parse(check_id(text, field, longest=MAX_EPISODE))
    except InvalidField as error:
        raise InvalidField(f"{field} is not an episode: {error.message}", field=field) from error


def _key(value: Any, field: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidField(f"{field} must be text, got {type(value).__name__}", field=field)
    if not 1 <= len(value) <= MAX_KEY:
        raise InvalidField(f"{field} must have 1 to {MAX_KEY} characters, got {len(value)}", field=field)
    return value
