"""The demo's comparison is only worth something if it notices what it is there to notice: each break here must make it fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gymckpt.coordinator import Fate, RestoreTarget
from gymckpt.errors import CutVoid
from gymckpt.participant import Episode
from servers.demo.judge import Before, Reference
from servers.demo.layout import MEMBERS, MODULES, WORKPLACE
from servers.demo.life import CoordinatedLife
from servers.demo.outcome import Outcome
from servers.demo.rollouts import Rollout, Tasks
from servers.demo.story import Demo, Settings
from tests.planted.breaks import BREAKS

ROLLOUTS = 8
ADDS_A_CUSTOMER = "customer_relationship_manager_add_customer"
"""Leaves None in columns that hold NaN elsewhere."""

pytestmark = pytest.mark.slow


def settings(directory: Path, broken: str = "", servers: Sequence[str] = ()) -> Settings:
    """A small demo in which `servers` run with a planted break."""
    if broken:
        assert broken in BREAKS
    tasks = Tasks.builtin()
    rows = sorted(tasks.rows, key=lambda row: ADDS_A_CUSTOMER not in str(row["ground_truth"]))
    return Settings(
        Tasks(tuple(rows)),
        directory,
        rollouts=ROLLOUTS,
        checkpoints=1,
        latency=(0.05, 0.2),
        instead={name: ("tests.planted", broken, MODULES[name]) for name in servers},
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """What all demos here are compared with; none of the breaks is in it."""
    demo = Demo(settings(tmp_path_factory.mktemp("undisturbed")), print)
    return asyncio.run(demo.undisturbed())


class Compared(Demo):
    """A demo that does not play the undisturbed rollouts again."""

    def __init__(self, given: Settings, reference: Reference) -> None:
        super().__init__(given, print)
        self._reference = reference

    async def undisturbed(self) -> Reference:
        return self._reference


class RestoresNothing(Compared):
    """A controller that starts every unfinished rollout over from its input."""

    async def restore(
        self, life: CoordinatedLife, before: Before, unfinished: Sequence[Rollout]
    ) -> Sequence[RestoreTarget]:
        return [
            RestoreTarget(Episode(rollout.rollout_id), 1, Fate.RESTARTED, "nothing was restored")
            for rollout in unfinished
        ]


async def outcome(directory: Path, reference: Reference, broken: str = "", servers: Sequence[str] = ()) -> Outcome:
    """How a demo with a break ends."""
    return await Compared(settings(directory, broken, servers), reference).run()


async def test_without_a_break_nothing_differs(tmp_path: Path, reference: Reference) -> None:
    """The control of the controls: the same small demo, whole. P14, S13."""
    assert (await outcome(tmp_path, reference)).failures() == []


async def test_a_controller_that_restores_nothing_repeats_calls(tmp_path: Path, reference: Reference) -> None:
    """P03, P01: rollouts that start over from their input make their calls again."""
    seen = await RestoresNothing(settings(tmp_path), reference).run()
    assert seen.tool_calls_repeated > 0
    assert seen.restarted == ROLLOUTS - seen.finished_before


async def test_a_server_that_forgets_what_it_restored_differs(tmp_path: Path, reference: Reference) -> None:
    """P03: conversations go on, but on fresh tables."""
    seen = await outcome(tmp_path, reference, "forget_restored_state", [WORKPLACE])
    assert seen.tables_different > 0
    assert seen.tool_outputs_different > 0
    assert seen.second_checkpoint_different > 0


async def test_a_codec_that_forgets_none_differs(tmp_path: Path, reference: Reference) -> None:
    """P03, R08: no answer of a tool and no byte of a checkpoint shows it, only the cells themselves."""
    seen = await outcome(tmp_path, reference, "forget_none", [WORKPLACE])
    assert seen.tables_different > 0
    assert seen.second_checkpoint_different == 0


async def test_a_server_that_accepts_the_older_attempt_is_found_out(tmp_path: Path, reference: Reference) -> None:
    """V03, P14: the calls of the dead are made, and one server carries them out."""
    seen = await outcome(tmp_path, reference, "accept_old_attempts", [WORKPLACE])
    assert seen.stale_attempts_accepted > 0


async def test_a_gate_that_reopens_before_the_cut_voids_it(tmp_path: Path, reference: Reference) -> None:
    """X01: there is no checkpoint to go on from."""
    with pytest.raises(CutVoid):
        await outcome(tmp_path, reference, "reopen_before_the_cut", [WORKPLACE])


async def test_gates_that_do_not_hold_repeat_calls(tmp_path: Path, reference: Reference) -> None:
    """P14, M01, R01: what runs between the cut and the crash is run again after it."""
    seen = await outcome(tmp_path, reference, "reopen_after_the_cut", list(MEMBERS))
    assert seen.tool_calls_repeated > 0
