"""What `gymckpt explain` tells, and what `checkpoint restore --lost-state` makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gymckpt.cli.exits import Exit
from gymckpt.coordinator import MemberReport, Recovery, Trouble
from gymckpt.core.ids import Episode, Fence, ParticipantId
from gymckpt.core.kinds import Capture, ExportState, GateState, Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import LostEpisode, Report
from gymckpt.core.transitions import Holdings
from gymckpt.errors import DamagedBlob, InvalidField, MemberMissing
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


@pytest.mark.parametrize(
    ("gate", "fence", "line"),
    [
        (GateState.OPEN, None, []),
        (GateState.CLOSING, Fence(1, 2, "step-2"), ["  gate CLOSING: 'step-2' holds it"]),
        (GateState.CLOSED, None, ["  gate CLOSED: nobody has opened it yet"]),
    ],
)
def test_a_gate_that_is_not_open_and_calls_that_are_held_are_named(
    gate: GateState, fence: Fence | None, line: list[str], capsys: Capsys
) -> None:
    """X24."""
    member = ParticipantInfo(TOOLS, "0", "ab" * 16, "127.0.0.1:1", Capture.EXPORTED)
    lost = (LostEpisode(Episode("r7"), "boot ab does not hold session s"),)
    answer = MemberReport(member, Report(), "", Holdings(gate, ExportState.NONE, fence), lost)
    silent = MemberReport(member, None, "nothing listens")
    fake = FakeCoordinator(reports=(answer, silent))
    command(fake, "explain")
    command(fake, "explain", "--json")
    *people, program = capsys.readouterr().out.splitlines()
    assert people[:-1] == [
        "resources/tools: ready",
        *line,
        "  lost r7: boot ab does not hold session s",
        "resources/tools: no answer: nothing listens",
    ]
    told, untold = json.loads(program)["members"]
    assert (told["gate"], told["gate_fence"]["id"] if fence else told["gate_fence"]) == (
        gate.name,
        "step-2" if fence else None,
    )
    assert [entry["episode"] for entry in told["lost"]] == ["r7"]
    assert (untold["gate"], untold["lost"]) == (None, [])


def test_programs_get_all_troubles_and_people_the_first(capsys: Capsys) -> None:
    many = Recovery("step-1", 50, 0, (NEW,) * 50)
    command(FakeCoordinator(recovery=many), "explain")
    assert capsys.readouterr().out.splitlines()[-1] == "  ... and 30 more; --json names all"
    command(FakeCoordinator(recovery=many), "explain", "--json")
    assert len(json.loads(capsys.readouterr().out)["recovery"]["troubles"]) == 50


def test_only_what_has_lost_state_is_restored_from_the_checkpoint_that_was_named(capsys: Capsys) -> None:
    """X13: the checkpoint names its episodes by the attempts that it saw."""
    fake = FakeCoordinator(recovery=replace(RECOVERY, silent=()))
    command(fake, "checkpoint", "restore", "--lost-state")
    [asked] = fake.restored
    assert (asked.checkpoint_id, asked.episodes) == ("step-1", (Episode("r1"),))
    assert "RESTORED" in capsys.readouterr().out


@pytest.mark.parametrize(("silent", "missing"), [((MODEL,), ()), ((), (MODEL,))])
def test_what_was_lost_is_not_known_before_every_server_is_back(
    silent: tuple[ParticipantId, ...], missing: tuple[ParticipantId, ...]
) -> None:
    """X24: nothing to restore would tell a script that all is well."""
    fake = FakeCoordinator(recovery=Recovery("step-1", 0, 0, (), silent), missing=missing)
    with pytest.raises(MemberMissing, match="model/policy did not say what they hold; start them, then retry"):
        command(fake, "checkpoint", "restore", "--lost-state")
    assert fake.restored == []


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
