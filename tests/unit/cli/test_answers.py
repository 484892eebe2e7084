"""What commands answer, to people and to programs, and what they warn of."""

from __future__ import annotations

import json

import pytest

from gymckpt.cli.exits import Exit
from gymckpt.coordinator import Checkpoint, MemberReport, Stage
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import Blocker, LostEpisode, Report
from tests.unit.cli.fakes import FakeCoordinator, command, published

Capsys = pytest.CaptureFixture[str]
MEMBER = ParticipantInfo(ParticipantId(Kind.MODEL, "policy"), "w1", "b1", "127.0.0.1:1", Capture.STATELESS)


NOTHING = {
    "members": [],
    "recovery": {"checkpoint_id": "", "rollouts": 0, "recoverable": 0, "troubles": [], "silent": []},
}


def lost(count: int) -> tuple[LostEpisode, ...]:
    return tuple(LostEpisode(Episode(f"r{number}"), f"reason {number}") for number in range(count))


def test_gates_left_closed_are_told_with_what_opens_them_and_when_they_open_by_themselves(capsys: Capsys) -> None:
    """R01."""
    fake = FakeCoordinator(published(pause_seconds=0.0))
    assert command(fake, "checkpoint", "create", "step-1", "--resume", "by-caller", "--gate-lease", "90s") == Exit.OK
    said = capsys.readouterr().out
    assert "  gates stay closed until `gymckpt checkpoint resume step-1`, at most 90 s\n" in said
    assert "prepare 0.250 s (waited for nothing), pause not over, upload 1.000 s" in said


def test_gates_that_are_open_again_are_not_called_closed(capsys: Capsys) -> None:
    """R01: the same command, repeated after the resume; and repeated at a later coordinator, which measured nothing."""
    for checkpoint in (published(), published(prepare_seconds=0.0, pause_seconds=0.0, upload_seconds=0.0)):
        command(FakeCoordinator(checkpoint), "checkpoint", "create", "step-1", "--resume", "by-caller")
        said = capsys.readouterr().out
        assert ("gates stay closed" in said, "not over" in said) == (False, False)


def test_a_held_checkpoint_says_for_how_long_its_gates_stay_closed(capsys: Capsys) -> None:
    """C02."""
    fake = FakeCoordinator(Checkpoint("step-1", Stage.HELD))
    assert command(fake, "checkpoint", "create", "step-1", "--on-not-ready", "hold") == Exit.HELD
    assert "gates stay closed until `gymckpt checkpoint abort step-1`, at most 60 s;" in capsys.readouterr().out


def test_abort_of_a_published_checkpoint_says_that_it_stands(capsys: Capsys) -> None:
    """X25."""
    assert command(FakeCoordinator(), "checkpoint", "abort", "step-1") == Exit.REFUSED
    assert "not aborted: it was published first and stands; every gate is open\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "warning: 1 episode lost, not in the checkpoint: r0: reason 0\n"),
        (2, "warning: 2 episodes lost, not in the checkpoint: r0: reason 0; r1: reason 1\n"),
        (12, "r9: reason 9; and 2 more\n"),
    ],
)
def test_lost_episodes_are_named_with_their_reasons(count: int, words: str, capsys: Capsys) -> None:
    fake = FakeCoordinator(published(lost=count), lost(count))
    assert command(fake, "checkpoint", "create", "step-1", "--episodes", "r0,r1") == Exit.OK
    warning = capsys.readouterr().err
    assert (warning.startswith("warning: "), warning.endswith(words), "r10" in warning) == (True, True, False)


def test_lost_episodes_stand_in_the_document_too(capsys: Capsys) -> None:
    command(FakeCoordinator(published(lost=12), lost(12)), "checkpoint", "create", "step-1", "--json")
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert [entry["episode"] for entry in document["lost"]] == [f"r{number}" for number in range(12)]
    assert document["lost"][0]["why"] == "reason 0"
    assert said.err.startswith("warning: 12 episodes lost")


def test_a_checkpoint_that_lost_nothing_warns_of_nothing(capsys: Capsys) -> None:
    command(FakeCoordinator(), "checkpoint", "create", "step-1", "--json")
    said = capsys.readouterr()
    assert (json.loads(said.out)["lost"], said.err) == ([], "")


def test_show_does_not_point_at_itself_but_create_points_at_show(capsys: Capsys) -> None:
    fake = FakeCoordinator(published(lost=1), lost(1))
    command(fake, "checkpoint", "show", "step-1")
    assert "checkpoint show" not in capsys.readouterr().out
    command(fake, "checkpoint", "create", "step-1")
    assert "`gymckpt checkpoint show step-1` names them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, ("1 episode can continue, 0 would restart, 1 is lost\n", "1 blob and 1 byte sent\n")),
        (2, ("2 episodes can continue, 0 would restart, 2 are lost\n", "2 blobs and 2 bytes sent\n")),
    ],
)
def test_one_of_a_thing_is_not_told_as_several(count: int, words: tuple[str, ...], capsys: Capsys) -> None:
    fake = FakeCoordinator(published(episodes=count, lost=count, blobs_sent=count, bytes_sent=count))
    command(fake, "checkpoint", "show", "step-1")
    said = capsys.readouterr().out
    assert all(part in said for part in words)
    report = Report((Blocker("tool_call", Episode("r1"), "/add s1", 1.0),) * count, count)
    command(FakeCoordinator(reports=(MemberReport(MEMBER, report),)), "explain")
    assert f"not ready, {count} {'blocker' if count == 1 else 'blockers'}\n" in capsys.readouterr().out


def test_tables_have_no_trailing_blanks(capsys: Capsys) -> None:
    command(FakeCoordinator(), "checkpoint", "list")
    heading, row = capsys.readouterr().out.splitlines()
    assert (heading, row) == (heading.rstrip(), row.rstrip())
    assert heading.index("STAGE") == row.index("PUBLISHED")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_a_coordinator_that_starts_waits_for_is_told_once_and_the_command_goes_on(
    form: tuple[str, ...], capsys: Capsys
) -> None:
    """X24: nobody looks at a command that says nothing."""
    fake = FakeCoordinator(starting=["waits for agent/x", "waits for agent/x", "waits for model/y"])
    assert command(fake, "participants", *form) is None
    said = capsys.readouterr()
    assert said.err == "warning: waits for agent/x\nwarning: waits for model/y\n"
    assert said.out != ""


UNREADABLE = published(why_unreadable="there is no blob 00:7")


def test_a_checkpoint_that_cannot_be_read_is_listed_with_the_reason_and_not_with_counts(capsys: Capsys) -> None:
    """X08: none of nothing would look like a checkpoint that is empty."""
    command(FakeCoordinator(UNREADABLE, older=(Checkpoint("old", Stage.PUBLISHED, episodes=7),)), "checkpoint", "list")
    said = capsys.readouterr()
    _, row, other = said.out.splitlines()
    assert row.split(maxsplit=7) == [
        "step-1",
        "PUBLISHED",
        "1.1",
        "-",
        *"???",
        "its manifest cannot be read: there is no blob 00:7",
    ]
    assert other.split() == ["old", "PUBLISHED", "0.0", "-", "7", "0", "0"]
    assert said.err.startswith("warning: nothing can be restored from step-1; see 'Store damaged")


def test_a_checkpoint_that_cannot_be_read_is_not_told_as_one_that_holds_nothing(capsys: Capsys) -> None:
    """X08."""
    assert command(FakeCoordinator(UNREADABLE), "checkpoint", "abort", "step-1") == Exit.REFUSED
    said = capsys.readouterr().out
    assert "  nothing can be restored from it, its manifest cannot be read: there is no blob 00:7\n" in said
    assert "can continue" not in said


@pytest.mark.parametrize(
    ("words", "answer", "document"),
    [
        (("checkpoint", "list"), "no checkpoints", {"checkpoints": []}),
        (("participants",), "no members", {"epoch": 1, "members": [], "missing": []}),
        (("explain",), "no members", NOTHING),
    ],
)
def test_an_empty_list_is_told_in_words(
    words: tuple[str, ...], answer: str, document: dict[str, object], capsys: Capsys
) -> None:
    nothing = FakeCoordinator(Checkpoint("", Stage.PUBLISHED))
    command(nothing, *words)
    said = capsys.readouterr().out
    assert (answer in said, "PARTICIPANT" in said, "STAGE" in said) == (True, False, False)
    command(nothing, *words, "--json")
    assert json.loads(capsys.readouterr().out) == document


def test_an_id_that_is_made_up_is_told_in_a_sentence(capsys: Capsys) -> None:
    fake = FakeCoordinator()
    command(fake, "checkpoint", "create")
    assert capsys.readouterr().err == f"taking checkpoint {fake.asked[0].checkpoint_id}\n"
    command(fake, "checkpoint", "restore")
    said = capsys.readouterr()
    made_up = said.out.split()[1]
    assert said.err == f"restoring as restore id {made_up}\n"
