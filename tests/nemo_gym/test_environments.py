"""Every exported environment: its sessions, killed at different depths and restored, go on with the same cookies as if nothing had happened.

One NeMo Gym holds all of them. Each first plays its rollouts to the end without interruption, then once more with a checkpoint in the middle. It holds the
next call of every agent while all resources servers are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gymckpt.core.ids import Digest
from gymckpt.nemo_gym.adapters import declared
from gymckpt.nemo_gym.adapters.base import Adapter
from gymckpt.participant import Capture
from gymckpt.store import StoreClient, contents_of, parts_of
from tests.nemo_gym.calls import Client
from tests.nemo_gym.environments import (
    CUSTOMER_SAYS,
    ENVIRONMENTS,
    POLICY,
    ROLLOUTS,
    WORDS,
    Call,
    Environment,
    Rollout,
    customers,
)
from tests.nemo_gym.gym import MODEL, Gym
from tests.nemo_gym.result import note
from tests.nemo_gym.rollouts import executed

ELSEWHERE = "workplace_assistant"  # killed and restored in test_cut_points and test_rollouts
STEADY, KILLED = "steady", "killed"
LONGEST_OUTAGE = 120.0  # seconds
Answers = list[tuple[int, bytes]]


class Agent(Client):
    """Plays one rollout. Calls again when the server is gone, for as long as it takes: so does NeMo Gym's client."""

    def __init__(self, url: str, rollout: Rollout, task: int) -> None:
        super().__init__(httpx.Client(timeout=LONGEST_OUTAGE), url)
        self.rollout, self.task = rollout, task
        self.answers: Answers = []

    def call(self, call: Call) -> None:
        deadline = time.monotonic() + LONGEST_OUTAGE
        while True:
            try:
                self.answers.append(self.post(*call))
                return
            except httpx.TransportError:
                assert time.monotonic() < deadline, f"{call[0]} of {self._url} has nobody to answer"
                time.sleep(0.05)  # the pause between two attempts to connect

    def begin(self) -> None:
        path, body = self.rollout.seed
        named = {} if "episode_id" in body else {"_ng_task_index": self.task, "_ng_rollout_index": 0}
        self.call((path, {**named, **body}))

    def end(self) -> None:
        self._http.close()

    def make(self, calls: list[Call]) -> None:
        for call in calls:
            self.call(call)

    @property
    def episode(self) -> str:
        typed = self.rollout.seed[1].get("episode_id")
        return typed["rollout_id"] if typed else f"{self.task}-0"


@dataclass
class Run:
    """What one run of an environment showed, by rollout; `states` are the parts of its sessions before their last calls."""

    answers: list[Answers] = field(default_factory=list)
    states: list[dict[str, bytes]] = field(default_factory=list)
    executed: list[list[Call]] = field(default_factory=list)
    fates: dict[str, int] = field(default_factory=dict)
    left_over: int = -1

    @property
    def rewards(self) -> list[float]:
        return [json.loads(answers[-1][1])["reward"] for answers in self.answers]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "executions.jsonl"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[Gym]:
    """All environments, with a model server whose policy is the customer of one of them."""
    gym = Gym(tmp_path_factory.mktemp("environments"))
    files = {name: gym.directory / name for name in ("words", "customers.json", "articles.json", "says.json")}
    files["words"].write_text("\n".join(WORDS))
    files["customers.json"].write_text(json.dumps(customers()))
    files["articles.json"].write_text("[]")
    files["says.json"].write_text(json.dumps(CUSTOMER_SAYS))
    gym.environment = {"PYTHONPATH": os.getcwd(), "EXECUTIONS": str(log), "WORDS": str(files["words"])}
    bank = {
        **{f"{who}_model_server": POLICY for who in ("user_sim", "judge")},
        **{f"{who}_responses_create_params": {"input": []} for who in ("user_sim", "judge")},
        "db_fpath": str(files["customers.json"]),
        "kb_fpath": str(files["articles.json"]),
    }
    try:
        gym.start_script("customer", "verifiers_judge.py", "--answers", str(files["says.json"]))
        gym.add_policy(gym.url("customer"))
        for environment in ENVIRONMENTS:
            settings = bank if environment.name == "indian_banking" else {}
            gym.add(environment.name, "resources_servers", environment.name, domain="agent", **settings)
        gym.serve_checkpoints()
        gym.start("policy_model", MODEL)
        start_all(gym)
        yield gym
    finally:
        gym.end()


def start_all(gym: Gym) -> None:
    with ThreadPoolExecutor(len(ENVIRONMENTS)) as threads:
        list(
            threads.map(
                lambda known: gym.start(known.name, f"tests.nemo_gym.logged_servers:{known.server}"), ENVIRONMENTS
            )
        )
    gym.members(len(ENVIRONMENTS) + 1)


def kill_all_and_restore(gym: Gym, rest: list[Future[None]]) -> dict[str, Any]:
    """Kills once every rollout has its next call at a closed gate."""
    gym.wait("coordinator", lambda: check_held(gym, len(rest)))
    for environment in ENVIRONMENTS:
        gym.kill(environment.name)
    start_all(gym)
    gym.command("checkpoint", "resume", "cut")
    restored: dict[str, Any] = gym.command("checkpoint", "restore", "cut")
    return restored


def check_held(gym: Gym, wanted: int) -> None:
    members = gym.command("explain")["members"]
    held = sum(member["report"]["counts"].get("held", 0) for member in members)
    if held != wanted:
        raise OSError(f"{held} of {wanted} calls are held")


def play_all(gym: Gym, log: Path, run: str, base: int) -> dict[str, Run]:
    """Rollout n has made n calls when the others begin to wait for it; all go on at once."""
    before = len(executed(log))
    played: dict[str, list[Agent]] = {}
    for place, known in enumerate(ENVIRONMENTS):
        rollouts = [known.rollout(number, run) for number in range(ROLLOUTS)]
        tasks = (base + place * ROLLOUTS + number for number in range(ROLLOUTS))
        played[known.name] = [Agent(gym.url(known.name), *pair) for pair in zip(rollouts, tasks, strict=True)]
    agents = [(number, agent) for group in played.values() for number, agent in enumerate(group)]
    runs = {name: Run() for name in played}
    with contextlib.ExitStack() as ended, ThreadPoolExecutor(len(agents)) as threads:
        for _, agent in agents:
            ended.callback(agent.end)
            agent.begin()
        list(threads.map(lambda pair: pair[1].make(pair[1].rollout.calls[: pair[0]]), agents))
        if run == KILLED:
            gym.command("checkpoint", "create", "cut", "--resume", "by-caller")
        rest = [threads.submit(agent.make, agent.rollout.calls[number:]) for number, agent in agents]
        fates = kill_all_and_restore(gym, rest) if run == KILLED else {}
        for future in rest:
            future.result()
        states = asyncio.run(states_at(gym, f"{run}-end"))
        list(threads.map(lambda pair: pair[1].make([pair[1].rollout.last]), agents))
    lines = executed(log)[before:]
    for name, group in played.items():
        episodes = [agent.episode for agent in group]
        runs[name] = Run(
            [agent.answers for agent in group],
            [states[episode] for episode in episodes if episode in states],
            by_session(lines, name),
            {
                fate: sum(entry["source"] in episodes for entry in found)
                for fate, found in fates.items()
                if isinstance(found, list)
            },
            gym.counts(name)["sessions"],
        )
    return runs


async def states_at(gym: Gym, name: str) -> dict[str, dict[str, bytes]]:
    """The parts of every session by its rollout, out of a checkpoint that is taken now."""
    created = await asyncio.to_thread(gym.command, "checkpoint", "create", name)
    async with StoreClient(gym.coordinator) as store:
        contents = await contents_of(store, Digest.parse(created["checkpoint"]["manifest"]))
        records = [record for exported in contents.participants for record in exported.records]
        return {
            record.episode.rollout_id: await parts_of(store, record.state)
            for record in records
            if record.state is not None
        }


def by_session(lines: list[dict[str, Any]], server: str) -> list[list[Call]]:
    """What each session executed after its seed, in the order of the seeds."""
    sessions: dict[str, list[Call]] = {}
    for line in lines:
        if line["server"] == server:
            sessions.setdefault(line["session"], []).append((line["path"], line["body"]))
    return [calls[1:] for calls in sessions.values()]


@pytest.fixture(scope="module")
def runs(fleet: Gym, log: Path) -> tuple[dict[str, Run], dict[str, Run]]:
    return play_all(fleet, log, STEADY, 1000), play_all(fleet, log, KILLED, 2000)


def plain(parts: dict[str, bytes]) -> dict[str, bytes]:
    """Without the name of the run, which some sessions keep."""
    return {name: part.replace(KILLED.encode(), STEADY.encode()) for name, part in parts.items()}


def scripts(environment: Environment) -> list[list[Call]]:
    rollouts = (environment.rollout(number, KILLED) for number in range(ROLLOUTS))
    return [[*rollout.calls, rollout.last] for rollout in rollouts]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=[known.name for known in ENVIRONMENTS])
def test_rollouts_of_a_killed_environment_are_as_uninterrupted(
    environment: Environment, runs: tuple[dict[str, Run], dict[str, Run]]
) -> None:
    """X01, R01, R08, X13."""
    steady, killed = (run[environment.name] for run in runs)
    script = scripts(environment)
    noted: dict[str, int] = {
        "rollouts": len(killed.answers),
        "continued": killed.fates["restored"],
        "restarted": killed.fates["restarted"],
        "lost": killed.fates["lost"],
        "tool_calls_repeated": sum(map(len, killed.executed)) - sum(map(len, script)),
        "tool_outputs_different": sum(a[1:-1] != b[1:-1] for a, b in zip(killed.answers, steady.answers, strict=True)),
        "tables_different": sum(plain(a) != plain(b) for a, b in zip(killed.states, steady.states, strict=True)),
        "rewards_different": sum(a != b for a, b in zip(killed.rewards, steady.rewards, strict=True)),
        "left_over": killed.left_over,
    }
    note("environments", environment.name, **noted)
    assert (noted.pop("rollouts"), noted.pop("continued")) == (ROLLOUTS, ROLLOUTS)
    assert set(noted.values()) == {0}, noted
    assert killed.executed == script, "every call was executed once, in its order"
    assert [answers[1:] for answers in killed.answers] == [answers[1:] for answers in steady.answers]
    assert {status for answers in killed.answers for status, _ in answers} == {200}
    assert steady.rewards == pytest.approx(environment.rewards)
    assert len(killed.states) == ROLLOUTS


def test_every_exported_environment_is_played() -> None:
    """D01."""
    exported = {path.split(".")[1] for path, adapter in declared().items() if is_exported(path, adapter)}
    assert exported == {environment.name for environment in ENVIRONMENTS} | {ELSEWHERE}


def is_exported(path: str, adapter: type[Adapter[Any, Any]]) -> bool:
    return path.startswith("resources_servers.") and adapter.capture is Capture.EXPORTED
