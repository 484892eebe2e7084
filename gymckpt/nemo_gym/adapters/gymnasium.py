"""Gymnasium-style servers: what `reset` begins and `step` changes is plain data, and the random generators that drive it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

from gymckpt.nemo_gym.adapters.base import MappingAdapter, declare

RANDOM, NUMPY, ESCAPED = "$random.Random", "$numpy.random.Generator", "$$"
"""Only keys of a mapping with one entry; one of the environment's own that begins with `$` is escaped."""


class GymnasiumAdapter(MappingAdapter):
    """Sessions of a subclass of GymnasiumServer, in `session_state` or the mapping that `attribute` names.

    Plain data may hold `random.Random` and `numpy.random.Generator` at any depth: they go on with the number that would have come next. A generator outside of
    the mapping is none of a session's, and is not captured; one that is in two places of a session is refused, because it would come back as two.
    """

    attribute = "session_state"

    def to_plain(self, value: Any) -> Any:
        seen: set[int] = set()
        for generator in _generators(value):
            if id(generator) in seen:
                raise ValueError(f"the session holds one {type(generator).__name__} in two places")
            seen.add(id(generator))
        return _pack(value)

    def from_plain(self, value: Any) -> Any:
        return _unpack(value)


@declare("resources_servers.blackjack.app:BlackjackEnv")
class Blackjack(GymnasiumAdapter):
    """Both hands, and the generator that deals: an unseeded one, so it is part of the state."""

    schema = "nemo_gym/blackjack/2"


@declare("resources_servers.example_multi_turn_gymnasium.app:ExampleMultiTurnEnv")
class MultiTurnGymnasium(GymnasiumAdapter):
    """The number of turns played."""

    attribute = "session_turns"
    schema = "nemo_gym/example_multi_turn_gymnasium/1"


@declare("resources_servers.indian_banking.app:IndianBankingResourcesServer")
class IndianBanking(GymnasiumAdapter):
    """The customers' data as the tools left it, the calls made, and the conversation with the simulated customer.

    What the judge said is kept by the process, not by a session: a fresh one asks again.
    """

    schema = "nemo_gym/indian_banking/1"


def _is_numpy_generator(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # who has not imported it holds none
    return numpy is not None and type(value) is numpy.random.Generator


def _is_generator(value: Any) -> bool:
    return type(value) is random.Random or _is_numpy_generator(value)


def _generators(value: Any) -> Iterator[Any]:
    if _is_generator(value):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _generators(item)


def _pack(value: Any) -> Any:
    if type(value) is random.Random:
        version, words, gauss = value.getstate()
        return {RANDOM: [version, list(words), gauss]}
    if _is_numpy_generator(value):
        return {NUMPY: _listed(value.bit_generator.state)}
    if type(value) is dict:
        packed = {key: _pack(item) for key, item in value.items()}
        marked = len(packed) == 1 and str(next(iter(packed))).startswith("$")
        return {ESCAPED: packed} if marked else packed
    return [_pack(item) for item in value] if type(value) is list else value


def _listed(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a bit generator with its arrays as lists, which it takes back."""
    return {
        key: _listed(item) if isinstance(item, dict) else item.tolist() if hasattr(item, "tolist") else item
        for key, item in state.items()
    }


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    key = next(iter(value)) if len(value) == 1 else ""
    if key == RANDOM:
        version, words, gauss = value[key]
        generator = random.Random()
        generator.setstate((version, tuple(words), gauss))
        return generator
    if key == NUMPY:
        return _numpy_generator(value[key])
    return {name: _unpack(item) for name, item in (value[key] if key == ESCAPED else value).items()}


def _numpy_generator(state: dict[str, Any]) -> Any:
    import numpy

    made = getattr(numpy.random, state["bit_generator"], None)
    if not (isinstance(made, type) and issubclass(made, numpy.random.BitGenerator)):
        raise ValueError(f"numpy has no bit generator {state['bit_generator']!r}")
    bits = made()
    bits.state = state
    return numpy.random.Generator(bits)
