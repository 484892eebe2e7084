"""`gymckpt retire`, and what it asks of the coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from gymckpt.core.ids import Episode
from tests.unit.cli.fakes import FakeCoordinator, command

R1, R2 = Episode("r1"), Episode("r2", 1)


@dataclass
class Retiring(FakeCoordinator):
    retired: list[tuple[tuple[Episode, ...], float]] = field(default_factory=list)

    async def retire_episodes(self, episodes: Iterable[Episode], timeout: float = 0.0) -> None:
        self.retired.append((tuple(episodes), timeout))


def test_episodes_are_retired_as_they_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """S01: on the line, or one per line in a file."""
    listed = tmp_path / "left-over"
    listed.write_text("r1\nr2-a1\n")
    fake = Retiring()
    assert not command(fake, "retire", "r1", "r2-a1", "--timeout", "5s")
    assert capsys.readouterr().out == "retired 2 episodes\n"
    assert not command(fake, "--json", "retire", f"@{listed}")
    assert json.loads(capsys.readouterr().out) == {"retired": ["r1", "r2-a1"]}
    assert fake.retired == [((R1, R2), 5.0), ((R1, R2), 30.0)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "episodes"),
        (["@/dev/null"], "'@/dev/null' names no episode$"),
        (["r1", "-x"], "No such option"),
        (["a b"], "'a b'"),
    ],
)
def test_nothing_is_retired_unless_every_word_is_an_episode(words: list[str], said: str) -> None:
    """X20: no episode never means all of them."""
    fake = Retiring()
    with pytest.raises(click.UsageError) as refused:
        command(fake, "retire", *words)
    refused.match(said)
    assert fake.retired == []
