"""The form of names, and the families that carry rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.core import names
from gymckpt.errors import InvalidField

SEGMENT = r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}"
NAME = re.compile(rf"{SEGMENT}(/{SEGMENT}){{0,7}}\Z")


@given(st.text(max_size=30) | st.from_regex(r"[a-z0-9./-]{0,40}", fullmatch=True))
def test_a_name_is_taken_exactly_when_it_has_the_form(name: str) -> None:
    """X20, X21."""
    if NAME.match(name) is not None and not name.startswith("epochs"):
        assert names.check_name(name) == name
    else:
        with pytest.raises(InvalidField) as refused:
            names.check_name(name)
        assert refused.value.field == "name"


@pytest.mark.parametrize("segment", ["..", ".", "", "-a", ".a", "a b", "a\\", "a\0", "é"])
@pytest.mark.parametrize("around", ["{}", "a/{}", "{}/a", "a/{}/b"])
def test_no_segment_leads_out_of_its_directory(segment: str, around: str) -> None:
    """X21."""
    with pytest.raises(InvalidField):
        names.check_name(around.format(segment))


def test_the_bounds_of_a_name_are_exact() -> None:
    """X20."""
    longest = "/".join(["a" * 127] * 3 + ["a" * 128])
    for good in ("a" * 160, "/".join("abcdefgh"), longest):
        assert names.check_name(good) == good
    for bad in ("a" * 161, "/".join("abcdefghi"), longest + "a", ""):
        with pytest.raises(InvalidField):
            names.check_name(bad)


def test_a_prefix_is_whole_segments_or_nothing() -> None:
    assert [names.check_prefix(prefix) for prefix in ("", "epochs", "a/b")] == ["", "epochs", "a/b"]
    for bad in ("/", "a/", "../a", "epochs/1"):
        with pytest.raises(InvalidField) as refused:
            names.check_prefix(bad)
        assert refused.value.field == "prefix"
    assert [names.is_below(name, "a") for name in ("a", "a/b", "ab", "b/a")] == [True, True, False, False]
    assert names.is_below("anything", "")


def test_an_epoch_is_read_back_from_its_name_and_sorts_by_number() -> None:
    assert [names.epoch_of(names.epoch_name(epoch)) for epoch in (1, 9, 10, 2**63 - 1)] == [1, 9, 10, 2**63 - 1]
    assert names.epoch_name(9) < names.epoch_name(10)
    assert names.epoch_of("intents/00000000000000000001") == 0
    with pytest.raises(InvalidField):
        names.check_name("epochs/7")


def test_only_members_pins_and_floors_may_be_deleted() -> None:
    for good in ("members/a/b/0/c", "pins/c/h", "floors/x/0"):
        assert names.check_deletable(good) == good
    for bad in (
        "decisions/c",
        "intents/c",
        "epochs/00000000000000000001",
        "deleted/c",
        "members",
        "membersx/a",
        "../pins/a",
    ):
        with pytest.raises(InvalidField):
            names.check_deletable(bad)


def test_a_checkpoint_publishes_and_a_restore_does_not() -> None:
    listed = ("decisions/c1", "decisions/restore-c1", "decisions/c1/x", "intents/c1", "decisions")
    assert [names.publishes(name) for name in listed] == [True, False, False, False, False]


@pytest.mark.parametrize(("value", "taken"), [(15 * 2**20, True), (15 * 2**20 + 1, False)])
def test_a_value_has_at_most_15_mebibytes(value: int, taken: bool) -> None:
    if taken:
        assert len(names.check_value(bytes(value))) == value
    else:
        with pytest.raises(InvalidField):
            names.check_value(bytes(value))
