"""`wordle`: a dataclass per session."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gymckpt.nemo_gym.adapters.base import MappingAdapter, declare


@declare("resources_servers.wordle.app:WordleResourcesServer")
class Wordle(MappingAdapter):
    """The game's dataclass; letters by place are pairs, and sets are sorted lists."""

    attribute = "session_state"
    schema = "nemo_gym/wordle/1"

    def to_plain(self, value: Any) -> Any:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {**fields, "known_greens": list(map(list, value.known_greens.items())), **_each(fields, sorted)}

    def from_plain(self, value: Any) -> Any:
        from resources_servers.wordle.app import WordleGameState

        return WordleGameState(**{**value, "known_greens": dict(value["known_greens"]), **_each(value, set)})


def _each(fields: dict[str, Any], make: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: make(fields[name]) for name in ("known_yellows", "eliminated_letters")}
