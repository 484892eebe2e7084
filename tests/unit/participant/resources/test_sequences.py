"""Random sequences of calls, rounds and losses against a plain account of what must hold. GYMCKPT_SEEDS raises the count; a failing seed fails alone."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from gymckpt.core.ids import Episode, Fence
from gymckpt.core.kinds import ExportState, GateState
from gymckpt.core.transitions import Abort, Decided, Prepare, Prepared, Renew, Resume, Snapshot, Upload
from gymckpt.errors import AlreadyRestored, Conflict, CutVoid, InvalidPhase, StaleCheckpoint
from gymckpt.participant.resources import Ticket
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Checkpoint, Rounds

SEEDS = int(os.environ.get("GYMCKPT_SEEDS", "25"))
STEPS = 100
ROLLOUTS = [f"r{number}" for number in range(5)]


class Walk:
    """One server, one coordinator's round at most, and what each session must be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rounds = Rounds()
        self.counters = Counters(self.rounds)
        self.attempts = dict.fromkeys(ROLLOUTS, 0)
        self.running: list[Ticket] = []
        self.fence: Fence | None = None
        self.prepared: Prepared | None = None
        self.taken: Any = None
        self.at_cut: dict[str, int] = {}
        self.restored = 0
        self.published: list[tuple[Checkpoint, dict[str, int]]] = []

    def episode(self, rollout: str) -> str:
        return str(Episode(rollout, self.attempts[rollout]))

    # What may happen.

    async def seed(self) -> None:
        rollout = self.random.choice(ROLLOUTS)
        call = self.counters.call(self.episode(rollout), "/seed_session")
        ticket = self.counters.participant.enter_now(call)
        if ticket is not None:
            self.counters.values[rollout] = self.random.randrange(1000)
            self.counters.leave(ticket, key=rollout)

    async def begin_call(self) -> None:
        rollout = self.random.choice(ROLLOUTS)
        within = Episode.parse(self.episode(rollout)) if self.random.random() < 0.1 else None
        if self.counters.participant.sessions.get(rollout) is not None:
            ticket = self.counters.participant.enter_now(self.counters.call(self.episode(rollout), within=within))
            if ticket is not None:
                self.running.append(ticket)

    async def end_call(self) -> None:
        if self.running:
            ticket = self.running.pop(self.random.randrange(len(self.running)))
            assert ticket.session is not None
            if self.counters.participant.sessions.get(ticket.session.key) is ticket.session:
                self.counters.values[ticket.session.key] += 1
            self.counters.leave(ticket, succeeded=self.random.random() < 0.8)

    async def prepare(self) -> None:
        fence = self.fence or self.rounds.fence()
        answer = await self.rounds.ask(self.counters.participant, fence, Prepare(0.0001, 600.0))
        self.fence, self.prepared = fence, answer

    async def snapshot(self) -> None:
        if self.fence is not None and self.prepared is not None and self.prepared.closing:
            base = self.published[-1][0].manifest.checkpoint_id if self.published else ""
            first = self.counters.export() is ExportState.NONE
            closing = Snapshot(self.prepared.closing, 600.0, self.random.choice(["", base]))
            self.taken = await self.rounds.ask(self.counters.participant, self.fence, closing)
            if first:
                self.at_cut = {key: self.counters.values[key] for key in self.counters.keys}

    async def resume(self) -> None:
        if self.fence is not None:
            await self.rounds.ask(self.counters.participant, self.fence, Resume())

    async def renew(self) -> None:
        if self.fence is not None:
            await self.rounds.ask(self.counters.participant, self.fence, Renew())

    async def upload(self) -> None:
        if self.fence is not None:
            await self.rounds.ask(self.counters.participant, self.fence, Upload())

    async def publish(self) -> None:
        if self.fence is not None and self.counters.export() is not ExportState.NONE:
            published = await self.rounds.publish(self.counters.participant, self.fence, self.taken)
            self.published.append((published, self.at_cut))
            await self.end(Resume())

    async def abort(self) -> None:
        await self.end(Abort() if self.random.random() < 0.7 else Decided(published=False))

    async def end(self, how: Any) -> None:
        if self.fence is not None:
            await self.rounds.ask(self.counters.participant, self.fence, how)
            await self.rounds.ask(self.counters.participant, self.fence, Resume())
            self.fence, self.prepared, self.taken = None, None, None

    async def retire(self) -> None:
        rollout = self.random.choice(ROLLOUTS)
        if not any(ticket.session and ticket.session.key == rollout for ticket in self.running):
            await self.rounds.retire(self.counters.participant, self.episode(rollout))
            self.attempts[rollout] += 1

    async def crash_and_restore(self) -> None:
        """The process is lost; another takes its newest checkpoint, under attempts that were never used."""
        if not self.published:
            return
        checkpoint, state = self.published[-1]
        self.counters, self.running = Counters(self.rounds), []
        self.fence, self.prepared, self.taken = None, None, None
        for rollout in ROLLOUTS:
            self.attempts[rollout] += 1
        targets = [(text, self.attempts[record.episode.rollout_id]) for text, record in checkpoint.records.items()]
        installed = await self.rounds.restore(self.counters.participant, checkpoint.digest, *targets)
        assert (installed.sessions, installed.unloadable) == (len(state), ())
        assert self.counters.values == state
        assert all(
            session.episode.attempt == self.attempts[session.key] for session in self.counters.participant.sessions
        )

    # What must hold.

    async def check(self) -> None:
        p = self.counters.participant
        if self.fence is None:
            assert (p.gate.state, p.export.state) == (GateState.OPEN, ExportState.NONE)
        assert p.in_flight.blocking == len(self.running) == len(list(p.blockers()))
        assert set(self.counters.keys) == set(self.counters.values)
        assert not any(p.floors.refuses(session.episode) for session in p.sessions)
        for checkpoint, state in self.published[-1:]:
            found = {
                record.session: (await self.rounds.parts(record))["value"] for record in checkpoint.manifest.records
            }
            assert {key: json.loads(value) for key, value in found.items()} == state


STEPS_BY_WEIGHT = {
    Walk.seed: 3,
    Walk.begin_call: 5,
    Walk.end_call: 10,
    Walk.prepare: 7,
    Walk.snapshot: 8,
    Walk.resume: 1,
    Walk.renew: 1,
    Walk.upload: 2,
    Walk.publish: 8,
    Walk.abort: 1,
    Walk.retire: 1,
    Walk.crash_and_restore: 1,
}


REFUSALS = (Conflict, CutVoid, InvalidPhase, StaleCheckpoint, AlreadyRestored)


async def go(walk: Walk) -> bool:
    """One step; whether it was carried out. A round that cannot come to an end is aborted, as its coordinator would."""
    [step] = walk.random.choices(list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values()))
    try:
        await step(walk)
    except REFUSALS as refused:
        if isinstance(refused, CutVoid | StaleCheckpoint):
            await walk.end(Abort())
        return False
    walk.restored += step is Walk.crash_and_restore and bool(walk.published)
    return True


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_sequence_leaves_what_must_hold(seed: int) -> None:
    """S01, S03, S04, S05, S07, S08, X02, X12, X15"""
    walk = Walk(seed)
    for _ in range(STEPS):
        await go(walk)
        await walk.check()


async def test_the_walks_publish_and_restore_often_enough_to_mean_something() -> None:
    """S08"""
    walks = [Walk(seed) for seed in range(10)]
    for walk in walks:
        for _ in range(STEPS):
            await go(walk)
    assert sum(len(walk.published) for walk in walks) > 20
    assert sum(walk.restored for walk in walks) > 10
