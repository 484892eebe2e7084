"""State as bytes and back: what comes back is what went in, or it is refused with the place."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gymckpt.errors import UnloadableState
from gymckpt.participant import MappingState, decode_json, encode_json

PLAIN: dict[str, Any] = {
    "z": 1,
    "a": {"later": [1, {"y": None, "b": True}], "earlier": ""},
    "large": 2**70,
    "text": "naïve \ud800 \u0000",
    "items": [{"n": n} for n in range(40)],
    "empty": [],
    "float": 0.1,
}


def through(value: Any) -> Any:
    """Frozen, encoded, loaded and installed under another key."""
    mapping: dict[str, Any] = {"s": value}
    state = MappingState(mapping, schema="plain/1")
    state.install("t", state.load(state.encode(state.freeze("s"))))
    return mapping["t"]


@pytest.mark.parametrize("value", [PLAIN, [], 0, "", None, True, -(2**70), [[[]]], {"": {"": 0.0}}])
def test_plain_data_comes_back_equal_in_the_order_of_its_keys(value: Any) -> None:
    """C29, C44"""
    assert repr(through(value)) == repr(value)


def test_a_not_a_number_and_an_infinity_come_back() -> None:
    """C44"""
    back = through({"nan": math.nan, "inf": -math.inf})
    assert math.isnan(back["nan"])
    assert back["inf"] == -math.inf


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"t": (1, 2)}, "value.t is tuple"),
        ({"m": {1: "a"}}, "value.m has the key 1"),
        ({"b": [b"x"]}, r"value.b\[0\] is bytes"),
        ({"s": {1, 2}}, "value.s is set"),
    ],
)
def test_what_json_would_change_is_refused_and_named(value: Any, place: str) -> None:
    """C44"""
    with pytest.raises(ValueError, match=place):
        through(value)


def test_frozen_state_does_not_follow_the_live_state() -> None:
    """V07, X02"""
    mapping: dict[str, Any] = {"s": {"items": [1]}}
    state = MappingState(mapping, schema="plain/1")
    frozen = state.freeze("s")
    mapping["s"]["items"].append(2)
    assert state.load(state.encode(frozen)) == {"items": [1]}


def test_a_longer_list_costs_its_last_block_only() -> None:
    """X11"""
    short, longer = encode_json({"items": list(range(40))}), encode_json({"items": list(range(41))})
    changed = {name for name in longer if short.get(name) != longer[name]}
    assert changed == {"layout", "list/0000/00000002"}
    assert decode_json(longer) == {"items": list(range(41))}


@pytest.mark.parametrize("lost", sorted(encode_json(PLAIN)))
def test_a_session_without_one_of_its_parts_is_refused(lost: str) -> None:
    """C11, C46"""
    parts = encode_json(PLAIN)
    del parts[lost]
    with pytest.raises(UnloadableState):
        decode_json(parts)
