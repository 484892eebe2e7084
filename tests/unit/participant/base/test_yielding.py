"""The interval at which threads change places is short while anybody encodes, and what it was afterwards."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gymckpt.core.transitions import Upload
from gymckpt.participant import upload
from gymckpt.participant.yielding import SWITCH_SECONDS, yielding
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds


def near(seconds: float) -> Any:
    """The interpreter keeps whole microseconds."""
    return pytest.approx(seconds, abs=2e-6)


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_it_is_short_while_one_encodes_and_comes_back_after_a_failure(usual: float) -> None:
    seen = []

    def encode() -> None:
        with yielding():
            seen.append(sys.getswitchinterval())
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        encode()
    assert seen == [near(SWITCH_SECONDS)]
    assert sys.getswitchinterval() == usual


def test_it_is_short_until_the_last_of_several_threads_has_encoded(usual: float) -> None:
    inside, leave = threading.Event(), threading.Event()

    def encode() -> None:
        with yielding():
            inside.set()
            leave.wait(20)

    other = threading.Thread(target=encode)
    with yielding():
        other.start()
        assert inside.wait(20)
    assert sys.getswitchinterval() == near(SWITCH_SECONDS)
    leave.set()
    other.join()
    assert sys.getswitchinterval() == usual


def test_one_that_is_shorter_already_stays() -> None:
    sys.setswitchinterval(SWITCH_SECONDS / 5)
    with yielding():
        assert sys.getswitchinterval() == near(SWITCH_SECONDS / 5)
    assert sys.getswitchinterval() == near(SWITCH_SECONDS / 5)


async def test_encoding_rests_when_the_event_loop_had_other_work_and_then_takes_longer_turns(
    rounds: Rounds, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One session, a rest, then all the others: a loop whose steps take long does not make an upload endless, nor does one that was stopped for a minute."""
    other_work, loop, encode, sleep = 0.3, asyncio.get_running_loop(), counters.state.encode, asyncio.sleep
    rests = []

    def encode_beside_work(frozen: bytes) -> Mapping[str, bytes]:
        loop.call_soon_threadsafe(time.sleep, other_work)
        return encode(frozen)

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    for rollout in ("a", "b", "c", "d"):
        counters.seed(rollout)
    fence, prepared = await rounds.prepare(counters.participant)
    await rounds.snapshot(counters.participant, fence, prepared)
    monkeypatch.setattr(counters.state, "encode", encode_beside_work)
    monkeypatch.setattr(upload, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(asyncio, "sleep", rest)
    await rounds.ask(counters.participant, fence, Upload())
    assert rests == [upload.LONGEST_REST] * 2
