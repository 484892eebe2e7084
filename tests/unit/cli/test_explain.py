"""What `gymckpt explain` tells, and what `checkpoint restore --lost-state` makes of it."""

from __future__ import annotations

import json

import pytest

from gymckpt.cli.exits import Exit
from gymckpt.coordinator import MemberReport, Recovery, Trouble
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import Report
from gymckpt.errors import DamagedBlob, InvalidField
from tests.unit.cli.fakes import FakeCoordinator, command

Capsys = pytest.CaptureFixture[str]
TOOLS, MODEL = ParticipantId(Kind.RESOURCES, "tools"), ParticipantId(Kind.MODEL, "policy")
LOST = Trouble(Episode("r1", 1), TOOLS, "held it in a process that is gone", Episode("r1"))
NEW = Trouble(Episode("r2"), None, "checkpoint 'step-1' does not hold it; the next one will")
RECOVERY = Recovery("step-1", 4, 3, (LOST, NEW), (MODEL,))


def test_the_share_comes_first_and_then_every_trouble_with_its_server(capsys: Capsys) -> None:
    command(FakeCoordinator(recovery=RECOVERY), "explain")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "3 of 4 rollouts recoverable (75%) from checkpoint step-1",
        "  model/policy does not answer: its rollouts are not counted",
        "  lost state r1-a1: resources/tools: held it in a process that is gone",
        "  not recoverable r2: checkpoint 'step-1' does not hold it; the next one will",
    ]


def test_a_latest_checkpoint_that_cannot_be_read_does_not_hide_what_blocks(capsys: Capsys) -> None:
    """X08."""
    damaged = DamagedBlob("the manifest of checkpoint 'step-1' cannot be read")
    member = ParticipantInfo(TOOLS, "0", "ab" * 16, "127.0.0.1:1", Capture.EXPORTED)
    fake = FakeCoordinator(reports=(MemberReport(member, Report()),), unexplained=damaged)
    for words in (("explain",), ("explain", "--json")):
        with pytest.raises(DamagedBlob) as raised:
            command(fake, *words)
        assert raised.value is damaged
    people, program = capsys.readouterr().out.splitlines()
    assert people == "resources/tools: ready"
    document = json.loads(program)
    assert (len(document["members"]), document["recovery"]) == (1, None)


def test_programs_get_all_troubles_and_people_the_first(capsys: Capsys) -> None:
    many = Recovery("step-1", 50, 0, (NEW,) * 50)
    command(FakeCoordinator(recovery=many), "explain")
    assert capsys.readouterr().out.splitlines()[-1] == "  ... and 30 more; --json names all"
    command(FakeCoordinator(recovery=many), "explain", "--json")
    assert len(json.loads(capsys.readouterr().out)["recovery"]["troubles"]) == 50


def test_only_what_has_lost_state_is_restored_from_the_checkpoint_that_was_named(capsys: Capsys) -> None:
    """X13: the checkpoint names its episodes by the attempts that it saw."""
    fake = FakeCoordinator(recovery=RECOVERY)
    command(fake, "checkpoint", "restore", "--lost-state")
    [asked] = fake.restored
    assert (asked.checkpoint_id, asked.episodes) == ("step-1", (Episode("r1"),))
    assert "RESTORED" in capsys.readouterr().out


def test_nothing_to_restore_is_a_success_and_asks_for_nothing(capsys: Capsys) -> None:
    """No episodes would mean all of them."""
    fake = FakeCoordinator(recovery=Recovery("step-1", 1, 0, (NEW,)))
    assert command(fake, "checkpoint", "restore", "--lost-state", "--json") in (None, Exit.OK)
    assert fake.restored == []
    assert json.loads(capsys.readouterr().out)["restored"] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [(("--episodes", "r1"), "leave --episodes out"), (("older",), "'step-1', not to 'older'")],
)
def test_it_finds_the_episodes_itself_and_in_the_latest_checkpoint_only(words: tuple[str, ...], problem: str) -> None:
    """X20."""
    fake = FakeCoordinator(recovery=RECOVERY)
    with pytest.raises(InvalidField, match=problem):
        command(fake, "checkpoint", "restore", "--lost-state", *words)
    assert fake.restored == []
