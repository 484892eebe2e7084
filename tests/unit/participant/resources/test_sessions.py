"""Which calls are let in, held or refused, and when a session begins and ends."""

from __future__ import annotations

import asyncio

import pytest

from gymckpt.core.kinds import Capture, GateState
from gymckpt.core.transitions import Snapshot
from gymckpt.errors import AlreadyRestored, Conflict, EpisodeRequired, GymckptError, InvalidField, StaleAttempt
from gymckpt.participant import Call, Episode, MappingState, ResourcesParticipant
from tests.unit.participant.base.bed import Counters
from tests.unit.participant.rounds import Rounds, settled


async def test_calls_wait_while_the_gate_is_closed_and_then_succeed(rounds: Rounds, counters: Counters) -> None:
    """R01, R03, X38"""
    counters.seed("r")
    fence, _ = await rounds.prepare(counters.participant)
    held = [
        asyncio.create_task(counters.participant.enter(counters.call(*call)))
        for call in (("r",), ("r", "/verify"), ("r", "/close_session"), ("s", "/seed_session"))
    ]
    await settled()
    assert [task.done() for task in held] == [False] * 4
    await rounds.resume(counters.participant, fence)
    assert all(ticket is not None for ticket in await asyncio.gather(*held))


async def test_work_inside_a_waited_for_step_and_harmless_calls_are_let_in_although_the_gate_is_closing(
    rounds: Rounds, counters: Counters
) -> None:
    """X37"""
    counters.seed("r")
    step = counters.enter("r")
    fence, waiting = rounds.closing(counters.participant)
    await settled()
    inside = counters.enter("r", within=Episode("r"))
    exempt = [
        Call("POST", "/aggregate_metrics"),
        Call("GET", "/health"),
        Call("POST", "/x", session="n", session_is_new=True),
    ]
    assert all(counters.participant.enter_now(call) is not None for call in exempt)
    counters.leave(step)
    await settled()
    assert not waiting.done()
    assert [blocker.type for blocker in counters.participant.report().blockers] == ["within"]
    counters.leave(inside)
    prepared = await waiting
    assert (await rounds.snapshot(counters.participant, fence, prepared)).sessions == 1


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize(
    ("route", "rises", "ends"),
    [
        ("/add", True, False),
        ("/read", False, False),
        ("/verify", True, True),
        ("/close_session", True, True),
        ("/seed_session", True, False),
    ],
)
def test_a_revision_rises_whatever_the_outcome_and_only_success_ends_a_session(
    rounds: Rounds, route: str, rises: bool, ends: bool, succeeded: bool
) -> None:
    """X32, R03, R04"""
    tools = Counters(rounds, read_only_routes=("/read",))
    tools.seed("r")
    session = tools.participant.sessions.get("r")
    assert session is not None
    tools.leave(tools.enter("r", route), succeeded=succeeded, key="r")
    seed_that_failed = route == "/seed_session" and not succeeded
    assert session.revision == 1 + (rises and not seed_that_failed)
    assert (tools.keys == []) is (ends and succeeded)
    assert (tools.values == {}) is (ends and succeeded)
    assert len(tools.participant.in_flight) == 0


def test_a_failed_seed_begins_nothing(counters: Counters) -> None:
    """R03, R04"""
    counters.leave(counters.enter("r", "/seed_session"), succeeded=False, key="r")
    assert counters.keys == []


async def test_a_seed_in_progress_blocks_and_is_exported_under_the_key_that_the_handler_chose(
    rounds: Rounds, counters: Counters
) -> None:
    """R03, A08"""
    seed = counters.enter("r", "/seed_session", session="cookie")
    fence, waiting = rounds.closing(counters.participant)
    await settled()
    assert [blocker.type for blocker in counters.participant.report().blockers] == ["seed"]
    counters.values["chosen"] = 1
    counters.leave(seed, key="chosen")
    prepared = await waiting
    taken = await rounds.snapshot(counters.participant, fence, prepared)
    published = await rounds.publish(counters.participant, fence, taken)
    assert [(record.session, record.revision) for record in published.manifest.records] == [("chosen", 1)]


async def test_a_replayed_verification_runs_during_a_checkpoint_and_its_session_ends_when_the_gate_opens(
    rounds: Rounds,
) -> None:
    """R05"""
    tools = Counters(rounds, verify="replay")
    tools.seed("r", value=9)
    before = tools.enter("r", "/verify")
    fence, prepared = await rounds.prepare(tools.participant)
    assert prepared.report.blocker_count == 0
    during = tools.enter("r", "/verify")
    for ticket in (before, during):
        tools.leave(ticket)
    taken = await rounds.ask(tools.participant, fence, Snapshot(prepared.closing, 600.0))
    assert (taken.sessions, tools.keys) == (1, ["r"])
    await rounds.resume(tools.participant, fence)
    assert (tools.keys, tools.values) == ([], {})


async def test_a_verification_that_is_waited_for_holds_prepare_and_its_session_is_not_exported(
    rounds: Rounds, counters: Counters
) -> None:
    """R06"""
    counters.seed("r")
    verify = counters.enter("r", "/verify")
    fence, waiting = rounds.closing(counters.participant)
    await settled()
    assert not waiting.done()
    counters.leave(verify)
    prepared = await waiting
    assert (await rounds.snapshot(counters.participant, fence, prepared)).sessions == 0


def caller(text: str | None, route: str = "/add", session: str | None = None, **fields: object) -> Call:
    return Call("POST", route, Episode.parse(text) if text else None, session, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (caller("r"), StaleAttempt),
        (caller("r", session="key"), StaleAttempt),
        (caller("r", "/close_session", "key"), StaleAttempt),
        (caller("r", "/seed_session"), StaleAttempt),
        (caller("r-a2", session="key"), StaleAttempt),
        (caller("s", session="key"), Conflict),
        (caller("s", "/seed_session", "key"), Conflict),
        (caller(None, session="key"), EpisodeRequired),
        (caller(None, "/seed_session", "fresh", session_is_new=True), EpisodeRequired),
    ],
    ids=str,
)
async def test_a_session_accepts_only_its_live_attempt(
    rounds: Rounds, counters: Counters, call: Call, refusal: type[GymckptError]
) -> None:
    """V03, R11"""
    await rounds.retire(counters.participant, "r")
    counters.seed("r-a1", key="key")
    with pytest.raises(refusal):
        counters.participant.enter_now(call)
    assert len(counters.participant.in_flight) == 0
    assert counters.values == {"key": 0}


def test_a_server_that_says_cookie_only_takes_the_attempt_from_the_session(rounds: Rounds) -> None:
    tools = Counters(rounds, cookie_only=True)
    tools.seed("r", key="cookie")
    ticket = tools.participant.enter_now(caller(None, session="cookie"))
    assert ticket is not None
    assert ticket.session is tools.participant.sessions.get("cookie")
    assert tools.participant.info.cookie_only


async def test_a_call_for_a_session_that_is_not_here_is_held_and_reported_until_its_attempt_is_retired(
    rounds: Rounds, counters: Counters
) -> None:
    """X38, R11"""
    held = asyncio.create_task(counters.participant.enter(counters.call("r", session="of the process before")))
    await settled()
    assert not held.done()
    [(episode, why)] = counters.participant.lost.items()
    assert (str(episode), "'of the process before'" in why) == ("r", True)
    assert counters.participant.report().ready
    await rounds.retire(counters.participant, "r")
    with pytest.raises(StaleAttempt):
        await held
    assert counters.participant.lost == {}


async def test_a_call_that_came_before_its_seed_had_answered_goes_on_when_it_has(counters: Counters) -> None:
    """X38"""
    held = asyncio.create_task(counters.participant.enter(counters.call("r", session="cookie")))
    await settled()
    assert list(counters.participant.lost) == [Episode("r")]
    counters.seed("r", key="cookie")
    ticket = await held
    assert ticket is not None
    assert counters.participant.lost == {}


async def test_a_close_of_a_session_that_is_gone_is_never_held_or_refused(rounds: Rounds, counters: Counters) -> None:
    """R13"""
    counters.seed("r")
    await rounds.retire(counters.participant, "r")
    assert counters.participant.enter_now(caller("r", "/close_session", "r")) is not None
    assert counters.participant.lost == {}


async def test_retire_waits_for_seeds_and_calls_in_flight_and_frees_what_they_built(
    rounds: Rounds, counters: Counters
) -> None:
    """R11, C17"""
    counters.seed("r", key="one")
    call = counters.enter("r", session="one")
    seed = counters.enter("r", "/seed_session")
    retiring = asyncio.create_task(rounds.retire(counters.participant, "r"))
    await settled()
    with pytest.raises(StaleAttempt):
        counters.enter("r", session="one")
    counters.leave(call)
    await settled()
    assert not retiring.done()
    counters.values["two"] = 2
    counters.leave(seed, key="two")
    await retiring
    assert (counters.keys, counters.values, len(counters.participant.in_flight)) == ([], {}, 0)


async def test_a_seed_onto_restored_state_must_say_that_it_continues_and_replaces_it_once_it_succeeds(
    rounds: Rounds, counters: Counters
) -> None:
    """X30"""
    counters.seed("r", key="old", value=7)
    published = await rounds.checkpoint(counters.participant)
    target = Counters(rounds)
    await rounds.restore(target.participant, published.digest, ("r", 1))
    with pytest.raises(AlreadyRestored):
        target.enter("r-a1", "/seed_session")
    target.leave(target.enter("r-a1", "/seed_session", continues=True), succeeded=False, key="new")
    assert (target.keys, target.values) == (["old"], {"old": 7})
    target.seed("r-a1", key="new", value=1, continues=True)
    assert (target.keys, target.values) == (["new"], {"new": 1})


async def test_a_seed_that_keeps_the_key_of_restored_state_begins_it_anew(rounds: Rounds, counters: Counters) -> None:
    """X30"""
    counters.seed("r", key="old", value=7)
    counters.add("r")
    published = await rounds.checkpoint(counters.participant)
    target = Counters(rounds)
    await rounds.restore(target.participant, published.digest, ("r", 1))
    target.seed("r-a1", key="old", value=1, continues=True)
    session = target.participant.sessions.get("old")
    assert session is not None
    assert (session.revision, target.values) == (1, {"old": 1})


def test_a_seed_whose_handler_took_somebody_elses_key_is_refused_and_wakes_whoever_waits(counters: Counters) -> None:
    counters.seed("r")
    moved = counters.participant.has_moved()
    with pytest.raises(Conflict):
        counters.leave(counters.enter("s", "/seed_session"), key="r")
    assert len(counters.participant.in_flight) == 0
    asyncio.run(asyncio.wait_for(moved, 1.0))


async def test_a_restart_only_server_never_blocks_and_only_its_seeds_wait(rounds: Rounds) -> None:
    """R10, C53"""
    tools = Counters(rounds, capture=Capture.RESTART_ONLY)
    tools.seed("r")
    tools.enter("r", within=Episode("r"))
    _, prepared = await rounds.prepare(tools.participant)
    assert prepared.report.ready
    tools.enter("r")
    tools.enter("r", "/verify")
    assert tools.participant.enter_now(tools.call("s", "/seed_session")) is None
    assert tools.gate() is GateState.CLOSED


async def test_a_stateless_server_misses_no_session(rounds: Rounds) -> None:
    """R09"""
    tools = Counters(rounds, capture=Capture.STATELESS)
    ticket = tools.enter("r", session="never seeded here")
    assert tools.participant.report().blocker_count == 1
    tools.leave(ticket)
    assert (tools.keys, tools.participant.lost) == ([], {})


def test_an_episode_with_two_sessions_must_say_which(counters: Counters) -> None:
    """X20"""
    for key in ("one", "two"):
        counters.seed("r", key=key)
    with pytest.raises(InvalidField, match="has 2 sessions here"):
        counters.enter("r")
    assert counters.enter("r", session="two").session is counters.participant.sessions.get("two")


def test_capture_and_state_must_agree() -> None:
    """X20"""
    for capture, state in ((Capture.EXPORTED, None), (Capture.STATELESS, MappingState[int]({}, schema="c/1"))):
        with pytest.raises(InvalidField, match="disagree"):
            ResourcesParticipant("tools", capture=capture, state=state)
    assert ResourcesParticipant("tools").capture is Capture.RESTART_ONLY


async def test_restored_state_that_was_used_is_an_ordinary_session(rounds: Rounds, counters: Counters) -> None:
    """R14, X30"""
    counters.seed("r")
    published = await rounds.checkpoint(counters.participant)
    target = Counters(rounds)
    await rounds.restore(target.participant, published.digest, ("r", 1))
    session = target.participant.sessions.get("r")
    assert session is not None
    assert target.enter("r-a1", method="GET").session is session
    seen = [session.restored]
    target.add("r-a1")
    assert [*seen, session.restored] == [True, False]
    target.seed("r-a1", value=5)
    assert (target.participant.sessions.get("r"), session.revision) == (session, 3)
