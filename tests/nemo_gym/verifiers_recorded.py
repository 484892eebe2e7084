"""What was recorded of the shipped verifiers: rollouts with their rewards, and what their judges said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.nemo_gym.upstream import response_to, text_of

NOT_STARTED = {
    "competitive_coding_challenges": (
        "its lifespan loads test_metadata.jsonl, the tests of its competitions (27 GB), which NeMo Gym does not ship",
        "app.py",
        "27 GB",
    ),
    "ether0": (
        "its module clones a repository from GitHub when it is imported, and needs rdkit, exmol and molbloom",
        "setup_ether0.py",
        '"git", "clone"',
    ),
    "instruction_following": (
        "requires verifiable-instructions from a repository and a spaCy model from a release page",
        "requirements.txt",
        "git+https://",
    ),
}
"""Verifiers that are not started: why, and the shipped file and text that show it."""

UNRECORDED = {
    "genrm_compare": "its recorded rows have no response and no reward; verified with made-up responses",
    "jailbreak_detection": "its recorded rows are placeholders; verified with made-up responses",
    "multichallenge": "its recorded rows have no response and no reward; verified with made-up responses",
    "structured_outputs": (
        "its recorded rows lack their schemas, and their tasks are not among the examples; verified with made-up responses"
    ),
}
"""Verifiers without a recorded verification, and why."""

EXPLAINED = {
    "math_with_judge": (1, "comparing two powers of thousands takes longer than math-verify's limit of 5 seconds here"),
    "mcqa": (2, "the released verifier reads a box that begins with the letter; the one that was recorded did not"),
}
"""The one recorded rollout of a verifier whose reward may be another one, and why; the shipped server without a participant differs alike."""

JUDGED_SO = {
    "genrm_compare": '{"score_1": 5, "score_2": 2, "ranking": 1}',
    "jailbreak_detection": "[[SAFE]] [[YES]] [[HAS_EXPLANATION]]",
    "multichallenge": "[[YES]]",
}
"""What a judge says of a made-up response."""

MEMBERS = 2  # of a cohort of genrm_compare


@dataclass(frozen=True)
class Recorded:
    """Bodies for /verify; `rewards` are the recorded ones, in the same order, and None where nothing was recorded."""

    bodies: list[dict[str, Any]]
    rewards: list[float] | None


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def recorded(data: Path, component: str) -> Recorded:
    """The recorded rollouts of a verifier as they were before their verification; made-up ones where none are usable."""
    tasks = rows(data / component / "example.jsonl")
    if component in UNRECORDED:
        members = MEMBERS if component == "genrm_compare" else 1
        return Recorded([made_up(component, *pair) for pair in _numbered(tasks, members)], None)
    known = {_prompt(task): task for task in tasks}
    rollouts = rows(data / component / "example_rollouts.jsonl")
    bodies = [{**known[_prompt(rollout)], "response": rollout["response"]} for rollout in rollouts]
    return Recorded(bodies, [rollout["reward"] for rollout in rollouts])


def made_up(component: str, number: int, member: int, task: dict[str, Any]) -> dict[str, Any]:
    """A verification of a task with a response that nobody gave."""
    script = json.dumps({"steps": [], "final": f"{_mark(component)}, member {member}."})
    response = response_to({"input": [{"role": "user", "content": script}], "model": "made-up"})
    return {**task, "response": response, "_ng_task_index": number, "_ng_rollout_index": member}


def judgements(data: Path) -> list[dict[str, Any]]:
    """Every question that judges were asked, as the texts it holds, with the answer."""
    found = [{"asked": [_mark(component)], "answer": answer} for component, answer in JUDGED_SO.items()]
    for component in ("abstention", "equivalence_llm_judge", "inverse_if", "math_with_judge", "terminus_judge"):
        for row in rows(data / component / "example_rollouts.jsonl"):
            found += [{"asked": asked, "answer": answer} for asked, answer in _judged(row)]
    return found


def _judged(row: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    if row.get("judge_output"):
        yield [row["question"], row["extracted_answer"]], row["judge_output"]
    for evaluation in row.get("rubric_evaluations") or []:
        yield [evaluation["judge_prompt"]], evaluation["judge_response"]
    for evaluation in row.get("judge_evaluations") or []:
        said = [text_of(item["content"]) for item in evaluation["response"]["output"] if item["type"] == "message"]
        yield [_prompt(evaluation)], "".join(said)


def _numbered(tasks: list[dict[str, Any]], members: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    return ((number, member, task) for number, task in enumerate(tasks) for member in range(members))


def _prompt(row: dict[str, Any]) -> str:
    given = row["responses_create_params"]["input"]
    return given if isinstance(given, str) else "\n".join(text_of(item["content"]) for item in given)


def _mark(component: str) -> str:
    return f"An answer made up for {component}"
