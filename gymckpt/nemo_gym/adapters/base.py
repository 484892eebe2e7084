"""What an adapter is, and the registry of them: one class in one file per server."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from gymckpt.core.kinds import Capture
from gymckpt.errors import InvalidField
from gymckpt.participant.state import MappingState, SessionState

F = TypeVar("F")
T = TypeVar("T")
A = TypeVar("A", bound="type[Adapter[Any, Any]]")

log = logging.getLogger("gymckpt.nemo_gym")

_REGISTRY: dict[str, type[Adapter[Any, Any]]] = {}


class Adapter(SessionState[F, T]):
    """How one resources server takes part: the five methods of a session's state (see SessionState), and what the server's routes mean.

    An adapter is made once per server, with the server. `verify="replay"` says that a verification may run again after a crash, so that no checkpoint waits
    for it; only for servers whose verification drops nothing. `read_only_routes` never change a session.
    """

    capture: ClassVar[Capture] = Capture.EXPORTED
    verify: ClassVar[Literal["wait", "replay"]] = "wait"
    read_only_routes: ClassVar[tuple[str, ...]] = ()
    carries_server: ClassVar[bool] = False
    """Whether each session carries state of the whole server: it changes without calls of the session, so every checkpoint freezes it anew."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def holds(self, session: str) -> bool:
        """Whether the server still has state of this session: one that it dropped by itself has ended."""
        return True

    def seeded(self, session: str, body: bytes) -> None:
        """A seed with this body (JSON, as the client sent it) has succeeded in the session."""


class NoState(Adapter[None, None]):
    """A server of which nothing is captured."""

    schema = ""

    def freeze(self, session: str) -> None:
        return None

    def encode(self, frozen: None) -> Mapping[str, bytes]:
        return {}

    def load(self, parts: Mapping[str, bytes]) -> None:
        return None

    def install(self, session: str, loaded: None) -> None:
        return None

    def discard(self, session: str) -> None:
        return None


class RestartOnly(NoState):
    """Nothing is known of the server's state: its episodes run on, are reported, and start over after a crash."""

    capture = Capture.RESTART_ONLY


class Stateless(NoState):
    """The server keeps nothing between two calls; a verification may run again."""

    capture = Capture.STATELESS
    verify = "replay"


class MappingAdapter(Adapter[bytes, Any]):
    """State in one mapping, `server.<attribute>[session]`. A subclass says `attribute`, and `schema`: name and version of the data.

    A value that is not plain data (see MappingState) is turned into it by `to_plain`, and made from it again by `from_plain`.
    """

    attribute: ClassVar[str]

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        sessions = getattr(server, self.attribute)
        if not isinstance(sessions, MutableMapping):
            raise InvalidField(
                f"{type(server).__name__}.{self.attribute} is {type(sessions).__name__}, not a mapping of sessions",
                field="attribute",
            )
        self._sessions = sessions
        self._plain: dict[str, Any] = {}
        self._state = MappingState(self._plain, schema=self.schema)

    def to_plain(self, value: Any) -> Any:
        """Part of `freeze`: on the event loop, and fast."""
        return value

    def from_plain(self, value: Any) -> Any:
        """Part of `load`: in any thread. Raises ValueError, TypeError or KeyError for what `to_plain` does not give."""
        return value

    def holds(self, session: str) -> bool:
        return session in self._sessions

    def freeze(self, session: str) -> bytes:
        self._plain[session] = self.to_plain(self._sessions[session])
        try:
            return self._state.freeze(session)
        finally:
            self._plain.clear()

    def encode(self, frozen: bytes) -> Mapping[str, bytes]:
        return self._state.encode(frozen)

    def load(self, parts: Mapping[str, bytes]) -> Any:
        return self.from_plain(self._state.load(parts))

    def install(self, session: str, loaded: Any) -> None:
        self._sessions[session] = loaded

    def discard(self, session: str) -> None:
        self._sessions.pop(session, None)


def declare(server: str) -> Callable[[A], A]:
    """Declares the adapter of a server class, named `module:Class`, and of no other: a subclass may keep more. Raises InvalidField for a second one."""

    def keep(adapter: A) -> A:
        if server in _REGISTRY:
            raise InvalidField(
                f"{server} has the adapter {_REGISTRY[server].__qualname__} already, {adapter.__qualname__} is a second one",
                field="server",
            )
        _REGISTRY[server] = adapter
        return adapter

    return keep


def adapter_of(server_class: type) -> type[Adapter[Any, Any]]:
    """The adapter that is declared for exactly this class, else RestartOnly, with a warning that names the class as a declaration must."""
    name = f"{_module_of(server_class)}:{server_class.__qualname__}"
    if name not in _REGISTRY:
        log.warning("no adapter is declared for %s: its episodes start over after a crash", name)
    return _REGISTRY.get(name, RestartOnly)


def _module_of(server_class: type) -> str:
    """The name under which others would import it: a program's own module is called `__main__`."""
    if server_class.__module__ != "__main__":
        return server_class.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else Path(getattr(main, "__file__", "__main__")).stem


def declared() -> Mapping[str, type[Adapter[Any, Any]]]:
    """All declared adapters by server."""
    return dict(_REGISTRY)
