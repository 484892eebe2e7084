"""Session state as bytes: nothing is lost, equal state gives equal bytes, and what cannot be carried is refused."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.errors import UnloadableState
from gymckpt.participant import MappingState, decode_json, encode_json
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def ordered(value: Any) -> str:
    """Tells apart what differs in key order or type only."""
    return json.dumps(value)


@given(st.dictionaries(st.text(), PLAIN | st.lists(st.integers(), max_size=70)))
def test_any_plain_data_comes_back_as_it_was_with_its_keys_in_order(value: dict[str, Any]) -> None:
    """C29, C44"""
    parts = encode_json(value)
    assert ordered(decode_json(parts)) == ordered(value)
    assert encode_json(decode_json(parts)) == parts
    state = MappingState[Any]({"s": value}, schema="plain/1")
    assert ordered(state.load(state.encode(state.freeze("s")))) == ordered(value)


def test_large_integers_and_nan_survive() -> None:
    """C44, W11"""
    back = decode_json(encode_json({"z": 2**70, "a": [math.nan, -math.inf, 2**200], "m": -0.0}))
    assert (back["z"], back["a"][2], list(back)) == (2**70, 2**200, ["z", "a", "m"])
    assert math.isnan(back["a"][0])
    assert str(back["m"]) == "-0.0"


@pytest.mark.parametrize(
    "foreign",
    [object(), datetime.datetime.now(datetime.UTC), {1, 2}, b"bytes", ...],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_data_is_refused(foreign: Any) -> None:
    """C44"""
    for value in ({"a": foreign}, {"a": [foreign]}, {"a": {"b": foreign}}):
        with pytest.raises(ValueError, match="not plain data"):
            encode_json(value)
        state = MappingState[Any]({"s": value}, schema="plain/1")
        with pytest.raises(ValueError, match="not plain data"):
            state.encode(state.freeze("s"))


@pytest.mark.parametrize("changed", [{1: "a"}, {"a": (1, 2)}, {"a": {None: 1}}], ids=repr)
def test_what_json_would_change_without_a_word_is_refused(changed: Any) -> None:
    """C44"""
    state = MappingState[Any]({"s": changed}, schema="plain/1")
    with pytest.raises(ValueError, match=r"not plain data|must be text"):
        encode_json(changed)
    with pytest.raises(ValueError, match=r"not plain data|must be text"):
        state.encode(state.freeze("s"))


def test_a_longer_list_costs_its_last_block_only() -> None:
    """X11"""
    turns = [{"turn": number} for number in range(100)]
    before, after = encode_json({"turns": turns}), encode_json({"turns": [*turns, {"turn": 100}]})
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"layout", "list/0000/00000006"}


def test_frozen_state_does_not_change_with_the_live_one() -> None:
    """V07, X02"""
    live = {"s": {"rows": [1]}}
    state = MappingState[Any](live, schema="plain/1")
    frozen = state.freeze("s")
    live["s"]["rows"].append(2)
    assert state.load(state.encode(frozen)) == {"rows": [1]}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"layout": b"["},
        {"layout": b'[["a",null]]'},
        {"layout": b'[["a",null]]', "value/0000": b"\xff"},
        {"layout": b'[["a",2]]', "list/0000/00000000": b"[1]"},
        {"layout": b'[["a","b"]]'},
        {"layout": b"7"},
    ],
    ids=range(7),
)
def test_parts_that_are_no_session_are_refused_by_type(parts: dict[str, bytes]) -> None:
    """C39, C46"""
    with pytest.raises(UnloadableState):
        decode_json(parts)


def test_a_mapping_loads_its_one_part_only() -> None:
    """C46"""
    state = MappingState[Any]({}, schema="plain/1")
    with pytest.raises(UnloadableState, match="has one part 'value'"):
        state.load({"value": b"1", "other": b"2"})
    with pytest.raises(ValueError, match="Expecting"):
        state.load({"value": b"{"})


async def test_every_session_is_frozen_once_in_one_go_and_one_that_the_server_lost_is_named(
    rounds: Rounds, counters: Counters
) -> None:
    """R07"""
    for text in ("a", "b", "c"):
        counters.seed(text)
    del counters.values["b"]
    published = await rounds.checkpoint(counters.participant)
    assert counters.state.frozen == ["a", "b", "c"]
    assert sorted(published.records) == ["a", "c"]
    assert [str(lost.episode) for lost in published.uploaded.failed] == ["b"]


async def test_state_that_is_null_is_state(rounds: Rounds) -> None:
    """C44"""
    source, target = Counters(rounds), Counters(rounds)
    source.seed("a")
    source.values["a"] = None  # type: ignore[assignment]
    published = await rounds.checkpoint(source.participant)
    await rounds.restore(target.participant, published.digest, ("a", 1))
    assert target.values == {"a": None}
