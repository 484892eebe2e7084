"""Shipped Gymnasium-style servers whose sessions hold Python objects: a random generator, a dataclass."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from gymckpt.nemo_gym.adapters.base import MappingAdapter, declare


@declare("resources_servers.blackjack.app:BlackjackEnv")
class Blackjack(MappingAdapter):
    """Both hands, and the generator that deals: an unseeded one, so it is part of the state."""

    attribute = "session_state"
    schema = "nemo_gym/blackjack/1"

    def to_plain(self, value: Any) -> Any:
        version, words, gauss = value["rng"].getstate()
        return {**value, "rng": [version, list(words), gauss]}

    def from_plain(self, value: Any) -> Any:
        version, words, gauss = value["rng"]
        generator = random.Random()
        generator.setstate((version, tuple(words), gauss))
        return {**value, "rng": generator}


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
