"""How a server's session state is held still, turned into bytes, and brought back."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

from gymckpt.errors import UnloadableState

F = TypeVar("F")
T = TypeVar("T")
V = TypeVar("V")

BLOCK = 16  # entries of a top-level list in one part: a longer conversation costs its last block only


class SessionState(Protocol[F, T]):
    """Five methods: all that an adapter ever is. Sessions are named by their key."""

    schema: str
    """Name and version of what `encode` gives, e.g. `counter/1`; state of another schema is never given to `load`."""

    def freeze(self, session: str) -> F:
        """On the event loop, at most 0.2 ms, without copying the bytes. What it returns never changes afterwards."""

    def encode(self, frozen: F) -> Mapping[str, bytes]:
        """In any thread, while the session runs on. Equal state gives equal bytes."""

    def load(self, parts: Mapping[str, bytes]) -> T:
        """In any thread; touches nothing. Raises UnloadableState or ValueError on anything that it does not understand."""

    def install(self, session: str, loaded: T) -> None:
        """On the event loop, after every session of the restore was loaded. May not fail."""

    def discard(self, session: str) -> None:
        """Drops the session; one that is not here is fine."""


def encode_json(value: Mapping[str, Any]) -> dict[str, bytes]:
    """Plain data as parts: one per key, lists cut into blocks of BLOCK entries. Key order, large integers and NaN are kept.

    Raises ValueError for what JSON cannot carry.
    """
    parts: dict[str, bytes] = {}
    layout: list[list[Any]] = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f"keys must be text, got {key!r}")
        if isinstance(item, list):
            for start in range(0, len(item), BLOCK):
                parts[f"list/{len(layout):04d}/{start // BLOCK:08d}"] = _dump(item[start : start + BLOCK])
            layout.append([key, len(item)])
        else:
            parts[f"value/{len(layout):04d}"] = _dump(item)
            layout.append([key, None])
    return {"layout": _dump(layout)} | parts


def decode_json(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The inverse of `encode_json`. Raises UnloadableState."""
    try:
        value: dict[str, Any] = {}
        for place, (key, length) in enumerate(json.loads(parts["layout"])):
            if length is None:
                value[key] = json.loads(parts[f"value/{place:04d}"])
                continue
            blocks = [
                json.loads(parts[f"list/{place:04d}/{block:08d}"]) for block in range((length + BLOCK - 1) // BLOCK)
            ]
            value[key] = [entry for block in blocks for entry in block]
            if len(value[key]) != length:
                raise UnloadableState(f"list {key!r} should have {length} entries, its parts have {len(value[key])}")
    except (KeyError, TypeError, ValueError) as error:
        raise UnloadableState(f"the parts {sorted(parts)[:8]} are not a JSON session: {error!r}") from error
    return value


def _dump(item: Any, at: str = "value") -> bytes:
    _check_plain(item, at)
    return json.dumps(item, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def _check_plain(item: Any, at: str) -> None:
    """What JSON would change without a word (a tuple, a number as a key) must not pass. Raises ValueError naming the place."""
    if isinstance(item, dict):
        for key, value in item.items():
            if type(key) is not str:
                raise ValueError(f"{at} has the key {key!r}: keys must be text, or they come back as text")
            _check_plain(value, f"{at}.{key}")
    elif type(item) is list:
        for place, value in enumerate(item):
            _check_plain(value, f"{at}[{place}]")
    elif item is not None and type(item) not in (str, int, float, bool):
        raise ValueError(f"{at} is {type(item).__name__} {item!r:.80}: not plain data")


class MappingState(Generic[V]):
    """State that is plain data in one mapping, keyed by session: `counters[session] = {...}`.

    Plain data is what JSON carries: None, booleans, integers of any size, floats with NaN, text, lists, dicts with text keys. Freezing copies it, at
    about 0.1 ms for 40 kB; state that is much larger implements the five methods itself.
    """

    def __init__(self, mapping: MutableMapping[str, V], *, schema: str) -> None:
        self._mapping = mapping
        self.schema = schema

    def freeze(self, session: str) -> bytes:
        """Raises KeyError when the mapping has no such session, ValueError when it is not plain data."""
        # A tenth of the time of JSON: this is the part that rollouts wait for. Version 2 keeps no references: equal values give equal bytes.
        value: Any = self._mapping[session]
        try:
            return marshal.dumps(value, 2)
        except ValueError as error:
            raise ValueError(f"not plain data: {type(value).__name__} {value!r:.80}") from error

    def encode(self, frozen: bytes) -> Mapping[str, bytes]:
        """Raises ValueError when the session is not plain data."""
        return {"value": _dump(marshal.loads(frozen))}

    def load(self, parts: Mapping[str, bytes]) -> V:
        if set(parts) != {"value"}:
            raise UnloadableState(f"{self.schema} has one part 'value', got {sorted(parts)[:8]}")
        loaded: V = json.loads(parts["value"])
        return loaded

    def install(self, session: str, loaded: V) -> None:
        self._mapping[session] = loaded

    def discard(self, session: str) -> None:
        self._mapping.pop(session, None)
