"""What an agent keeps of a session: its request, the facts for whoever closes it, and where its loop stands."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymckpt.core.ids import Episode
from gymckpt.core.manifest import Touch
from gymckpt.core.steps import EpisodeSteps
from gymckpt.errors import InvalidField, UnloadableState
from gymckpt.participant.state import decode_json, encode_json

JsonObject = dict[str, Any]

IDLE = "idle"
_LOOP = "loop."
_OURS = ("boundary", "activations", "reply", "facts", "request")


@dataclass(frozen=True, slots=True)
class Loop:
    """A declared boundary. Both functions are called only when a checkpoint takes it, and must tell how things stood when it was declared."""

    name: str
    snapshot: Callable[[], JsonObject]
    touches: Callable[[], Sequence[Touch]]


@dataclass(slots=True)
class AgentSession:
    """One agent session between its activations. `activations` were completed, the last one with `reply`; `loop` is where an unfinished one continues."""

    episode: Episode
    key: str
    request: JsonObject
    facts: JsonObject = field(default_factory=dict)
    activations: int = 0
    reply: JsonObject | None = None
    loop: Loop | None = None
    touches: Callable[[], Sequence[Touch]] = tuple


@dataclass(frozen=True, slots=True)
class FrozenAgent:
    """A session in a cut, held still as marshalled plain data."""

    boundary: str
    state: bytes


def hold_still(value: Any) -> bytes:
    """Plain data as it is now, ten times faster than JSON text; `marshal.loads` brings it back. Raises ValueError for anything else."""
    return marshal.dumps(value)


def check_plain(value: JsonObject, field: str) -> JsonObject:
    """A copy of plain data that shares nothing with it. Raises InvalidField for what would not come back as it is."""
    if not isinstance(value, dict):
        raise InvalidField(f"{field} must be an object, got {type(value).__name__}", field=field)
    try:
        return decode_json(encode_json(value))
    except ValueError as error:
        raise InvalidField(f"{field} is not plain data: {error}", field=field) from error


class AgentState:
    """The five methods over the sessions and the live steps of their activations."""

    schema = "gymckpt.agent/1"

    def __init__(self, steps: EpisodeSteps[Loop]) -> None:
        self._steps = steps
        self.sessions: dict[str, AgentSession] = {}

    def loop(self, session: str) -> Loop | None:
        """The boundary that a checkpoint takes now; None: the session stands between activations."""
        return self._steps[session].boundary if session in self._steps else self.sessions[session].loop

    def freeze(self, session: str) -> FrozenAgent:
        held, loop = self.sessions[session], self.loop(session)
        state = (held.activations, held.reply, held.facts, held.request, loop.snapshot() if loop is not None else None)
        return FrozenAgent(loop.name if loop is not None else IDLE, hold_still(state))

    def encode(self, frozen: FrozenAgent) -> Mapping[str, bytes]:
        activations, reply, facts, request, loop = marshal.loads(frozen.state)
        state = dict(zip(_OURS, (frozen.boundary, activations, reply, facts, request), strict=True))
        return encode_json(state | {f"{_LOOP}{name}": value for name, value in (loop or {}).items()})

    def load(self, parts: Mapping[str, bytes]) -> JsonObject:
        state = decode_json(parts)
        loop = {name.removeprefix(_LOOP): value for name, value in state.items() if name.startswith(_LOOP)}
        ours = [name for name in state if not name.startswith(_LOOP)]
        if ours != list(_OURS) or (loop and state["boundary"] == IDLE):
            raise UnloadableState(
                f"an agent session has {list(_OURS)} and its loop, got {ours} at {state.get('boundary')!r}"
            )
        if not isinstance(state["activations"], int) or not isinstance(state["request"], dict):
            raise UnloadableState(
                "an agent session counts its activations in an integer and keeps its request as an object"
            )
        return {name: state[name] for name in _OURS} | {"loop": loop}

    def install(self, session: str, loaded: JsonObject) -> None:
        """Whose it is, and what it touches, `bind` says."""
        loop = None
        if loaded["boundary"] != IDLE:
            still = hold_still(loaded["loop"])
            loop = Loop(loaded["boundary"], lambda: _revive(still), tuple)
        self.sessions[session] = AgentSession(
            Episode("unbound"),
            session,
            loaded["request"],
            loaded["facts"],
            loaded["activations"],
            loaded["reply"],
            loop,
        )

    def bind(self, session: str, episode: Episode, touches: tuple[Touch, ...]) -> None:
        """Completes what `install` brought."""
        held = self.sessions[session]
        held.episode, held.touches = episode, lambda: touches
        if held.loop is not None:
            held.loop = Loop(held.loop.name, held.loop.snapshot, lambda: touches)

    def discard(self, session: str) -> None:
        self.sessions.pop(session, None)


def _revive(still: bytes) -> JsonObject:
    revived: JsonObject = marshal.loads(still)
    return revived
