"""Identifiers validate themselves and read back from their text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.core.ids import (
    MAX_ATTEMPT,
    MAX_BLOB,
    Digest,
    Episode,
    Fence,
    ParticipantId,
    check_boot_id,
    check_id,
)
from gymckpt.core.kinds import Kind
from gymckpt.errors import InvalidField

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(IDS, st.integers(0, MAX_ATTEMPT))
def test_an_episode_reads_back_from_its_text(rollout: str, attempt: int) -> None:
    try:
        episode = Episode(rollout, attempt)
    except InvalidField:
        assert rollout.rpartition("-a")[2].isdigit()
        return
    assert Episode.parse(str(episode)) == episode


@given(st.text(max_size=20) | IDS)
def test_text_that_parses_is_the_text_of_what_it_parsed_to(text: str) -> None:
    """X21: two texts never name one episode."""
    try:
        episode = Episode.parse(text)
    except InvalidField:
        return
    assert str(episode) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r", Episode("r", 0)),
        ("r-a1", Episode("r", 1)),
        ("r-a12", Episode("r", 12)),
        ("r-a1000000", Episode("r", 1_000_000)),
        ("r-a0", Episode("r-a0", 0)),
        ("r-a01", Episode("r-a01", 0)),
        ("r-a", Episode("r-a", 0)),
        ("r.x-b1", Episode("r.x-b1", 0)),
    ],
)
def test_the_text_form_of_attempts(text: str, expected: Episode) -> None:
    assert Episode.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text", ["", "-a1", "r-a1-a2", "r-a1000001", "r-a99999999999", "a/b", "..", ".r", "r\n", "é", "a" * 129]
)
def test_text_that_is_no_episode_is_refused(text: str) -> None:
    """X20, X21."""
    with pytest.raises(InvalidField):
        Episode.parse(text)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Episode(""), "rollout_id"),
        (lambda: Episode("r-a2"), "rollout_id"),
        (lambda: Episode("r", -1), "attempt"),
        (lambda: Episode("r", MAX_ATTEMPT + 1), "attempt"),
        (lambda: ParticipantId(Kind.AGENT, ""), "name"),
        (lambda: ParticipantId(Kind.AGENT, "a/b"), "name"),
        (lambda: ParticipantId.parse("agent"), "participant"),
        (lambda: ParticipantId.parse("actor/x"), "participant"),
        (lambda: Fence(0, 1, "c"), "fence.epoch"),
        (lambda: Fence(1, 0, "c"), "fence.sequence"),
        (lambda: Fence(2**63, 1, "c"), "fence.epoch"),
        (lambda: Fence(1, 1, ""), "fence.checkpoint_id"),
        (lambda: Fence(1, 1, "c" * 137), "fence.checkpoint_id"),
        (lambda: Digest(b"x", 1), "blake3"),
        (lambda: Digest(bytes(32), -1), "size"),
        (lambda: Digest(bytes(32), MAX_BLOB + 1), "size"),
        (lambda: Digest.parse("ab:1"), "digest"),
        (lambda: Digest.parse("AB" * 32 + ":1"), "digest"),
        (lambda: Digest.parse("ab" * 32), "digest"),
        (lambda: check_boot_id("ab"), "boot_id"),
        (lambda: check_boot_id("AB" * 16), "boot_id"),
        (lambda: check_id("a" * 129, "worker"), "worker"),
    ],
)
def test_a_value_that_is_none_is_refused_by_field(make: Any, field: str) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        make()
    assert refused.value.field == field


def test_a_restore_of_the_longest_checkpoint_id_has_a_fence() -> None:
    assert Fence(1, 1, "restore-" + "c" * 128).checkpoint_id.endswith("c")


@given(st.binary(min_size=32, max_size=32), st.integers(0, MAX_BLOB))
def test_a_digest_reads_back_from_its_text(blake3: bytes, size: int) -> None:
    assert Digest.parse(str(Digest(blake3, size))) == Digest(blake3, size)


@pytest.mark.parametrize("kind", Kind)
def test_a_participant_reads_back_from_its_text(kind: Kind) -> None:
    assert ParticipantId.parse(str(ParticipantId(kind, "x-1"))) == ParticipantId(kind, "x-1")
