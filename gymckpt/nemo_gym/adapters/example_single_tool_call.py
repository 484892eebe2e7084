"""`example_single_tool_call`: typed sessions, and the ones that are closed for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from gymckpt.errors import UnloadableState
from gymckpt.nemo_gym.adapters.base import Adapter, declare


class Frozen(NamedTuple):
    """`binding` is what a typed session is bound to: `[id, episode, task]`; `closed` are the ids that no seed may open again."""

    binding: list[Any] | None
    closed: frozenset[str]


class Loaded(NamedTuple):
    """The same, with the server's own types of episode and task in `identity`."""

    named: str | None
    identity: tuple[Any, Any] | None
    closed: frozenset[str]


@declare("resources_servers.example_single_tool_call.app:SimpleWeatherResourcesServer")
class SingleToolCall(Adapter[Frozen, Loaded]):
    """A closed session is remembered by the server as long as it lives, after its episode has ended.

    So every session carries the ids of all that are closed, in one part that is stored once: whichever session is restored, none of these can be opened again.
    A checkpoint without any session of this server carries none.
    """

    schema = "nemo_gym/example_single_tool_call/1"
    carries_server = True

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._ids: dict[str, str] = {}  # the server's own id of each typed session
        self._closed: frozenset[str] = frozenset()

    def seeded(self, session: str, body: bytes) -> None:
        named = json.loads(body).get("resources_session_id")
        if named in self.server._session_episodes:
            self._ids[session] = named

    def holds(self, session: str) -> bool:
        return session not in self._ids or self._ids[session] in self.server._session_episodes

    def freeze(self, session: str) -> Frozen:
        if len(self._closed) != len(self.server._closed_session_ids):  # it only grows
            self._closed = frozenset(self.server._closed_session_ids)
        named = self._ids.get(session, "")
        if named not in self.server._session_episodes:
            return Frozen(None, self._closed)
        episode, task = self.server._session_episodes[named]
        return Frozen([named, episode.model_dump(), task.model_dump()], self._closed)

    def encode(self, frozen: Frozen) -> Mapping[str, bytes]:
        return {"binding": json.dumps(frozen.binding).encode(), "closed": json.dumps(sorted(frozen.closed)).encode()}

    def load(self, parts: Mapping[str, bytes]) -> Loaded:
        from nemo_gym.episode_types import EpisodeId, TaskId

        if set(parts) != {"binding", "closed"}:
            raise UnloadableState(f"{self.schema} has the parts 'binding' and 'closed', got {sorted(parts)[:8]}")
        binding, closed = json.loads(parts["binding"]), frozenset(json.loads(parts["closed"]))
        if binding is None:
            return Loaded(None, None, closed)
        named, episode, task = binding
        return Loaded(named, (EpisodeId.model_validate(episode), TaskId.model_validate(task)), closed)

    def install(self, session: str, loaded: Loaded) -> None:
        self.server._closed_session_ids.update(loaded.closed)
        self._closed = frozenset()  # what it was compared with no longer counts
        if loaded.named is not None:
            self._ids[session] = loaded.named
            self.server._session_episodes[loaded.named] = loaded.identity
            self.server._closed_session_ids.discard(loaded.named)

    def discard(self, session: str) -> None:
        """What the id is bound to stays, as the server itself keeps it until the close; a new session of the same seed may have it already."""
        self._ids.pop(session, None)
