"""The calls of older attempts, against servers that refuse them and servers that do not."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from gymckpt.participant import EPISODE_HEADER, REASON_HEADER, SESSION_HEADER, Episode
from servers.demo.cut import Standing
from servers.demo.rollouts import Tasks
from servers.demo.zombies import Zombie, attack, executed

ROLLOUT = Tasks.builtin().rollouts(1)[0]
CALL = {"type": "function_call", "call_id": "call_1", "name": ROLLOUT.plan[0].name, "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "{}"}


def zombie(*items: dict[str, str]) -> Zombie:
    return Zombie(
        Episode(ROLLOUT.rollout_id), ROLLOUT, Standing(list(items), "cookie-1", playing=True), "http://workplace"
    )


async def attacked(answer: Callable[[httpx.Request], httpx.Response], *zombies: Zombie) -> tuple[int, set[str]]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        made = await attack(http, zombies, "http://model")
    return made.tried, {name for _, name in made.accepted}


async def test_every_zombie_makes_its_next_seed_tool_model_and_verify_call() -> None:
    """V03."""
    seen: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(409, headers={REASON_HEADER: "STALE_ATTEMPT"})

    assert await attacked(refuse, zombie(CALL, OUTPUT)) == (4, set())
    second_tool = ROLLOUT.plan[1].name
    urls = ["http://workplace/seed_session", f"http://workplace/{second_tool}"]
    assert [str(request.url) for request in seen] == [*urls, "http://model/v1/responses", "http://workplace/verify"]
    assert {request.headers[EPISODE_HEADER] for request in seen} == {ROLLOUT.rollout_id}
    assert {request.headers[SESSION_HEADER] for request in seen} == {"cookie-1"}
    assert json.loads(seen[1].content) == json.loads(ROLLOUT.plan[1].arguments)
    assert json.loads(seen[2].content)["input"][-2:] == [CALL, OUTPUT]


async def test_a_tool_call_that_was_never_answered_is_made_again_under_its_id() -> None:
    assert zombie(CALL).headers["x-gymckpt-request-id"] == "call_1"


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200),
        httpx.Response(500),
        httpx.Response(409),
        httpx.Response(409, headers={REASON_HEADER: "CONFLICT"}),
    ],
)
async def test_only_the_refusal_of_a_stale_attempt_is_a_refusal(answer: httpx.Response) -> None:
    """V03: an answer that looks like a failure does not prove that nothing was done."""
    tried, accepted = await attacked(lambda _: answer, zombie())
    assert (tried, len(accepted)) == (4, 4)


async def test_a_call_that_is_held_is_not_refused() -> None:
    def hold(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("held", request=request)

    assert len((await attacked(hold, zombie()))[1]) == 4


def test_an_executed_call_of_an_older_attempt_is_found_in_the_log() -> None:
    def line(attempt: int | None, pid: int, rollout: str | None = "x") -> dict[str, object]:
        return {"rollout": rollout, "attempt": attempt, "pid": pid, "what": "add"}

    assert executed([line(0, 7), line(1, 8), line(None, 8, None)], {"x": 1}, [8, 9]) == frozenset()
    assert executed([line(0, 8)], {"x": 1}, [8, 9]) == {("x", "add")}
