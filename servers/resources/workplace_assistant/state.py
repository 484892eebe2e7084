"""The sessions' tables as session state of a participant."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from servers.resources.workplace_assistant import codec
from servers.resources.workplace_assistant.tables import Tables


class TablesState:
    """`sessions` maps session key -> tables; the tables that sessions share are encoded once."""

    schema = "workplace_assistant/1"

    def __init__(self, sessions: MutableMapping[str, Tables]) -> None:
        self._sessions = sessions
        self._cache = codec.PartsCache()

    def freeze(self, session: str) -> Tables:
        return codec.freeze(self._sessions[session])

    def encode(self, frozen: Tables) -> Mapping[str, bytes]:
        return codec.encode(frozen, self._cache)

    def load(self, parts: Mapping[str, bytes]) -> Tables:
        return codec.decode(parts)

    def install(self, session: str, loaded: Tables) -> None:
        self._sessions[session] = loaded

    def discard(self, session: str) -> None:
        self._sessions.pop(session, None)
