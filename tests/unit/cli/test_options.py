"""What stands on a command line becomes a value of the protocol, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from gymckpt.cli import options
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Kind

PARAM = click.Option(["--it"])
CONTEXT = click.Context(click.Command("any"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("250ms", 0.25), ("0", 0.0)]
)
def test_a_duration_is_seconds_whatever_its_unit(text: str, seconds: float) -> None:
    assert options.seconds(CONTEXT, PARAM, text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1d", "1 s", "1e3", "nan"])
def test_what_is_no_duration_is_refused_and_shown(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"got {text!r}"):
        options.seconds(CONTEXT, PARAM, text)


def test_episodes_are_read_from_the_line_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "scope").write_text("r3\n\nr4-a2\n")
    given = ("r1,r2-a1", f"@{tmp_path / 'scope'}")
    assert options.episodes(CONTEXT, PARAM, given) == (
        Episode("r1"),
        Episode("r2", 1),
        Episode("r3"),
        Episode("r4", 2),
    )


def test_episodes_that_are_not_given_mean_all_of_them() -> None:
    assert options.episodes(CONTEXT, PARAM, ()) == ()


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (options.episodes, ("r1,r 2",), "'r 2'"),
        (options.episodes, ("",), "'' names no episode; leave the option out"),
        (options.episodes, (" ,", ""), "' ,' '' names no episode"),
        (options.episodes, ("@/dev/null",), "'@/dev/null' names no episode"),
        (options.episodes, ("@/nowhere/scope",), "cannot read '/nowhere/scope'"),
        (options.participants, ("planet/x",), "'planet/x'"),
        (options.labels, ("step",), "key=value, got 'step'"),
        (options.labels, ("a=1", "a=2"), "'a' is given twice: '1' and '2'"),
    ],
)
def test_a_malformed_entry_is_refused_and_shown_x20(read: Any, given: tuple[str, ...], message: str) -> None:
    """X20."""
    with pytest.raises(click.BadParameter, match=message):
        read(CONTEXT, PARAM, given)


def test_participants_and_labels_become_values() -> None:
    assert options.participants(CONTEXT, PARAM, ("environment/x,model/y",)) == (
        ParticipantId(Kind.ENVIRONMENT, "x"),
        ParticipantId(Kind.MODEL, "y"),
    )
    assert options.labels(CONTEXT, PARAM, ("step=120", "note=a=b")) == {"step": "120", "note": "a=b"}


@pytest.mark.parametrize("text", ["nowhere", "host:99999", "host:"])
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="host:port"):
        options.address(CONTEXT, PARAM, text)
