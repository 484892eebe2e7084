"""Episodes that are played to a result, and what is kept of them."""

from __future__ import annotations

from typing import Any

from gymckpt.core.chunks import digest_of
from gymckpt.core.ids import Episode
from gymckpt.core.results import Acknowledgement, FinishedResult
from gymckpt.core.transitions import Acknowledge, Acknowledged
from gymckpt.participant.environment import EnvironmentParticipant, Run
from tests.unit.participant.environment.conftest import Play
from tests.unit.participant.rounds import PATIENCE, Rounds

RESULT = {"reward": 1.0, "response": {"output": [{"text": "ä\u2028", "n": 2**70}]}, "a": None}
BODY = '{"reward":1.0,"response":{"output":[{"text":"ä\u2028","n":1180591620717411303424}]},"a":null}'.encode()
RECEIPT = digest_of(BODY).blake3
OTHER = digest_of(b"another").blake3


def fresh(rounds: Rounds) -> EnvironmentParticipant:
    """A process in which checkpointing is on."""
    participant = EnvironmentParticipant("single_agent_turn")
    rounds.serve(participant)
    participant.enabled = True
    return participant


class Playing:
    """Plays an episode to `result`, unless it has one; `played` counts."""

    def __init__(self, result: Any = RESULT) -> None:
        self.played = 0
        self._result = result

    async def __call__(self, run: Run) -> Any:
        if run.reply is None:
            self.played += 1
            await run.boundary("return", {"n": self.played})
            run.complete(self._result)
        return run.reply


async def finished(environment: EnvironmentParticipant, text: str = "r", result: Any = RESULT, **options: Any) -> Any:
    """The answer to one `/run`."""
    return await Play(environment, text, Playing(result), **options).result()


async def again(environment: EnvironmentParticipant, text: str = "r", **options: Any) -> Any:
    """The answer to a `/run` that must play nothing."""
    script = Playing("played again")
    answer = await Play(environment, text, script, **options).result()
    assert script.played == 0
    return answer


async def listed(environment: EnvironmentParticipant) -> dict[str, FinishedResult]:
    page, more = await environment.results.page(100, None)
    assert not more
    return {str(entry.episode): entry for entry in page}


async def acknowledge(
    environment: EnvironmentParticipant, rounds: Rounds, *pairs: tuple[str, bytes], timeout: float = PATIENCE
) -> list[str]:
    asked = tuple(Acknowledgement(Episode.parse(text), receipt) for text, receipt in pairs)
    answer: Acknowledged = await rounds.ask(environment, rounds.fence("acknowledge"), Acknowledge(asked, timeout))
    return [str(episode) for episode in answer.unknown]


def counted(environment: EnvironmentParticipant) -> tuple[int, int, int]:
    counts = environment.counts()
    return counts["sessions"], counts["episodes"], counts["results"]
