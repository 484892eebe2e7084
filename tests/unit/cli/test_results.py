"""`gymckpt results`, and what it asks of the coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.results import Acknowledgement, FinishedResult
from tests.unit.cli.fakes import FakeCoordinator, command

R1, R2 = Episode("r1"), Episode("r2", 1)
BODY = digest_of(b"{}")
HEX = BODY.blake3.hex()
Asked = tuple[tuple[Acknowledgement, ...], float]


@dataclass
class Keeping(FakeCoordinator):
    kept: tuple[FinishedResult, ...] = ()
    acknowledged: list[Asked] = field(default_factory=list)

    async def results(self) -> tuple[FinishedResult, ...]:
        return self.kept

    async def acknowledge_results(
        self, acknowledgements: Iterable[Acknowledgement], timeout: float = 0.0
    ) -> tuple[Episode, ...]:
        self.acknowledged.append((tuple(acknowledgements), timeout))
        return (R2,)


def test_results_are_listed_with_what_acknowledges_them(capsys: pytest.CaptureFixture[str]) -> None:
    """S01, X17."""
    assert not command(Keeping(), "results", "list")
    assert capsys.readouterr().out == "no unacknowledged results\n"
    fake = Keeping(kept=(FinishedResult(R1, BODY, durable=True), FinishedResult(R2, BODY, durable=False)))
    assert not command(fake, "results", "list")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["EPISODE", "RECEIPT", "BYTES", "DURABLE"],
        ["r1", HEX, "2", "yes"],
        ["r2-a1", HEX, "2", "no"],
    ]
    assert not command(fake, "--json", "results", "list")
    shown = json.loads(capsys.readouterr().out)["results"]
    assert shown[0] == {"episode": "r1", "receipt": HEX, "body": f"{HEX}:2", "durable": True}
    assert (shown[1]["episode"], shown[1]["durable"]) == ("r2-a1", False)


def test_results_are_acknowledged_as_they_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """S01: on the line, or one per line in a file."""
    listed = tmp_path / "arrived"
    listed.write_text(f"r1={HEX}\nr2-a1={HEX}\n")
    fake = Keeping()
    assert not command(fake, "results", "acknowledge", f"r1={HEX}", f"r2-a1={HEX}", "--timeout", "5s")
    assert capsys.readouterr().out == (
        "acknowledged 1 result\nunknown r2-a1: acknowledged before, retired, or never finished\n"
    )
    assert not command(fake, "--json", "results", "acknowledge", f"@{listed}")
    assert json.loads(capsys.readouterr().out) == {"acknowledged": ["r1"], "unknown": ["r2-a1"]}
    both = (Acknowledgement(R1, BODY.blake3), Acknowledgement(R2, BODY.blake3))
    assert fake.acknowledged == [(both, 5.0), (both, 30.0)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "acknowledgements"),
        (["@/dev/null"], "'@/dev/null' names no result$"),
        (["r1"], "EPISODE=RECEIPT"),
        ([f"r1={HEX[1:]}"], "64 hexadecimal digits"),
        ([f"r1={HEX}0"], "64 hexadecimal digits"),
        ([f"a b={HEX}"], "'a b'"),
        ([f"r1={HEX}", f"={HEX}"], "required"),
    ],
)
def test_nothing_is_acknowledged_unless_every_word_is_a_result(words: list[str], said: str) -> None:
    """X20."""
    fake = Keeping()
    with pytest.raises(click.UsageError) as refused:
        command(fake, "results", "acknowledge", *words)
    refused.match(said)
    assert fake.acknowledged == []
