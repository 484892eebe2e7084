"""How errors end a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymckpt import errors
from gymckpt.cli.exits import MEANINGS, Exit, exit_code, next_step
from gymckpt.errors import GymckptError

README = Path(__file__).resolve().parents[3] / "gymckpt/cli/README.md"


def every_error() -> Iterator[GymckptError]:
    """One of each class that may be raised."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, GymckptError) and kind.reason:
            yield kind("what happened", details={"offset": "0"})


@pytest.mark.parametrize("error", list(every_error()), ids=lambda error: type(error).__name__)
def test_no_error_ends_a_command_as_if_it_had_succeeded(error: GymckptError) -> None:
    assert exit_code(error) in set(Exit) - {Exit.OK, Exit.HELD, Exit.INTERRUPTED}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidField("x", field="y"), Exit.USAGE),
        (errors.NotReady("x"), Exit.REFUSED),
        (errors.CheckpointAborted("x"), Exit.REFUSED),
        (errors.CheckpointNotFound("x"), Exit.REFUSED),
        (errors.ParticipantLost("x"), Exit.REFUSED),
        (errors.StoreFull("x"), Exit.REFUSED),
        (errors.TransportFailed("x"), Exit.UNREACHABLE),
        (errors.StoreUnavailable("x"), Exit.UNREACHABLE),
        (errors.DamagedBlob("x"), Exit.DAMAGED),
        (errors.BlobNotFound("x"), Exit.DAMAGED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, GymckptError) else value.name,
)
def test_the_exit_code_tells_whose_move_it_is(error: GymckptError, code: Exit) -> None:
    assert exit_code(error) is code


@pytest.mark.parametrize(
    "error", [errors.NotReady("x"), errors.Conflict("x"), errors.MemberMissing("x"), errors.TransportFailed("x")]
)
def test_a_refusal_that_a_person_can_act_on_says_how(error: GymckptError) -> None:
    assert next_step(error)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (errors.TransportFailed("x"), "see that `gymckpt serve` runs and that --coordinator"),
        (errors.TransportFailed("x", details={"listen": "127.0.0.1:1"}), "choose another --listen"),
        (errors.StoreUnavailable("x", details={"address": "127.0.0.1:1"}), "see that `gymckpt serve` runs"),
        (errors.StoreUnavailable("x", details={"directory": "/data", "process": "7"}), "stop that process, or name"),
        (errors.DeadlineExceeded("x", details={"refused": "1"}), "the same command again waits for whoever has not"),
        (errors.ParticipantLost("x", details={"refused": "1"}), "the attempts are refused already"),
        (errors.ParticipantLost("x", details={"results": "1"}), "start it again first if it is dead"),
        (errors.ReceiptMismatch("x"), "`gymckpt results list` tells the receipts"),
        (errors.StoreUnavailable("x", details={"doing": "opening the store at /data"}), "the store's directory"),
        (errors.Conflict("x", details={"holder": "step-1"}), "`gymckpt checkpoint resume ID`"),
        (errors.DamagedBlob("x", details={"name": "decisions/step-1"}), "copy the store's directory first"),
        (errors.CutVoid("x", details={"base": "step-1"}), "--full"),
        (errors.InvalidField("x"), "correct the option that the message names"),
        (errors.InvalidField("x", details={"config": "run.toml"}), "correct the file"),
        (errors.ArgumentConflict("x"), "or repeat the first request exactly"),
        (errors.ArgumentConflict("x", details={"deleted": "1"}), "under a new id"),
        (errors.MissingBlobs("x"), "`gymckpt checkpoint create --full`"),
    ],
)
def test_the_next_step_fits_the_cause_and_not_only_the_class(error: GymckptError, step: str) -> None:
    assert step in next_step(error)
    assert ("gymckpt serve" in next_step(error)) == ("gymckpt serve" in step)


def test_the_table_in_the_readme_is_the_table_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z]+) \| (.+) \|$", README.read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), code.name, MEANINGS[code]) for code in Exit]


def test_where_a_next_step_leads_is_in_the_readme() -> None:
    headings = re.findall(r"^### (.+)$", README.read_text(), re.MULTILINE)
    named = [
        found
        for error in every_error()
        for found in re.findall(r"see '(.+?)' in gymckpt/cli/README.md", next_step(error))
    ]
    assert named
    assert set(named) <= set(headings)
