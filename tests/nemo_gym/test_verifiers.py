"""The shipped verifiers, embedded: what was recorded of them holds, and no checkpoint holds a verification or waits for one."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from nemo_gym import PARENT_DIR
from omegaconf import OmegaConf

from gymckpt.core.kinds import Capture
from gymckpt.nemo_gym.adapters import declared
from gymckpt.nemo_gym.adapters.verifiers import VERIFIERS
from tests.nemo_gym.calls import Client
from tests.nemo_gym.gym import MODEL, Gym
from tests.nemo_gym.result import note
from tests.nemo_gym.verifiers_recorded import (
    EXPLAINED,
    MEMBERS,
    NOT_STARTED,
    UNRECORDED,
    judgements,
    made_up,
    recorded,
    rows,
)

CONFIGURATIONS = {
    "equivalence_rule": "lc",
    "format_verification": "freeform_formatting",
    "jailbreak_detection": "jailbreak_detection_nemotron_combined_reward_tp8",
    "nvarc": "transductive",
    "structured_outputs": "structured_outputs_v4",
    "terminus_judge": "terminus_judge_simple",
}
"""Where a component has no configuration of its own name, or was recorded with another one."""
JUDGES = ("judge_model_server", "genrm_model_server")
CHANGED: dict[str, dict[str, Any]] = {
    "genrm_compare": {"num_rollouts_per_prompt": MEMBERS},
    "jailbreak_detection": {"use_nemotron_format": False},
}
VERIFIER = "verifier"  # the instance, whichever component it is, so that one takes the place of the one before
TASKS = itertools.count()


@pytest.fixture(scope="module")
def data(shared: Path) -> Path:
    return shared / "data" / "nemo_gym"


@pytest.fixture(scope="module")
def bench(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    """Everything but a verifier is running: a coordinator, a judge and its model server."""
    gym = Gym(tmp_path_factory.mktemp("verifiers"))
    try:
        answers = gym.directory / "answers.json"
        answers.write_text(json.dumps(judgements(data)))
        gym.environment = {"PYTHONPATH": os.getcwd(), "RAY_USAGE_STATS_ENABLED": "0"}
        gym.start_script("judge", "verifiers_judge.py", "--answers", str(answers))
        gym.add_policy(gym.url("judge"))
        gym.serve_checkpoints()
        gym.start("policy_model", MODEL)
        yield gym
    finally:
        gym.end()


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=120.0) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def start(gym: Gym, component: str) -> None:
    """The shipped verifier with its shipped settings, judged by the policy model; in the place of the one before."""
    folder = Path(PARENT_DIR, "resources_servers", component)
    configuration = folder / "configs" / f"{CONFIGURATIONS.get(component, component)}.yaml"
    instances = OmegaConf.to_container(OmegaConf.load(configuration), resolve=False)
    assert isinstance(instances, dict)
    servers = (instance.get("resources_servers", {}) for instance in instances.values())
    settings = next(server[component] for server in servers if component in server)
    judge = {"type": "responses_api_models", "name": "policy_model"}
    settings |= {name: judge for name in JUDGES if name in settings}
    settings |= CHANGED.get(component, {})
    settings.pop("entrypoint")
    if VERIFIER in gym.running:
        gym.kill(VERIFIER)
    gym.add(VERIFIER, "resources_servers", component, **settings)
    gym.start(VERIFIER, f"resources_servers.{component}.app:{VERIFIERS[component]}")
    gym.members(2)


def seeded(gym: Gym, http: httpx.Client, count: int) -> list[Client]:
    clients = [Client(http, gym.url(VERIFIER)) for _ in range(count)]
    for client in clients:
        client.seed(next(TASKS))
    return clients


def verify(client: Client, body: dict[str, Any]) -> float:
    """The reward. Fails unless it is the verdict on the response, and not on the way to it."""
    status, answer = client.post("/verify", body)
    assert status == 200, answer[-2000:]
    said = json.loads(answer)
    assert not said.get("mask_sample"), f"{said.get('failure_kind')}: {said.get('failure_reason')}"
    reward: float = said["reward"]
    return reward


@pytest.mark.parametrize("component", VERIFIERS)
def test_a_shipped_verifier_is_declared_stateless_and_its_verification_repeatable(component: str) -> None:
    """D01: the class that the shipped app runs, of which there is no other one."""
    source = Path(PARENT_DIR, "resources_servers", component, "app.py").read_text(encoding="utf-8")
    assert re.findall(r"^    (\w+)\.run_webserver\(\)", source, re.MULTILINE) == [VERIFIERS[component]]
    adapter = declared()[f"resources_servers.{component}.app:{VERIFIERS[component]}"]
    assert (adapter.capture, adapter.verify) == (Capture.STATELESS, "replay")


@pytest.mark.parametrize("component", sorted(NOT_STARTED))
def test_a_verifier_that_is_not_started_needs_what_no_package_index_has(component: str) -> None:
    why, file, shown = NOT_STARTED[component]
    assert shown in Path(PARENT_DIR, "resources_servers", component, file).read_text(encoding="utf-8")
    note("verifiers", component, started=False, rollouts=0, rewards_equal=None, reason=why)


@pytest.mark.parametrize("component", [name for name in VERIFIERS if name not in NOT_STARTED])
def test_recorded_rollouts_get_their_rewards_before_and_during_a_checkpoint(
    component: str, bench: Gym, data: Path, http: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    """D01, P07, R05: the gate is closed, for it holds a seed, and lets every verification through."""
    start(bench, component)
    known = recorded(data, component)
    first, second = (seeded(bench, http, len(known.bodies)) for _ in range(2))
    before = list(pool.map(verify, first, known.bodies))
    created = bench.command("checkpoint", "create", component, "--resume", "by-caller")
    assert created["checkpoint"]["restarts"] == 0
    late = pool.submit(seeded, bench, http, 1)
    during = list(pool.map(verify, second, known.bodies))
    assert not late.done()
    bench.command("checkpoint", "resume", component)
    late.result(timeout=60)
    seen = list(zip(before, during, known.rewards or before, strict=True))
    different = [place for place, rewards in enumerate(seen) if len(set(rewards)) > 1]
    place, why = EXPLAINED.get(component, (None, ""))
    rollouts, rewards_equal = (0, None) if known.rewards is None else (len(known.bodies), not different)
    reason = UNRECORDED.get(component, f"rollout {place}: {why}" if different else "")
    note("verifiers", component, started=True, rollouts=rollouts, rewards_equal=rewards_equal, reason=reason)
    assert different in ([], [place]), seen


def test_a_cohort_that_waits_for_a_member_does_not_block_a_checkpoint(
    bench: Gym, data: Path, http: httpx.Client, pool: ThreadPoolExecutor
) -> None:
    """R05, C35: the checkpoint ends while a verification waits, and the one it waits for arrives at a closed gate."""
    component = "genrm_compare"
    start(bench, component)
    task = rows(data / component / "example.jsonl")[0]
    bodies = [made_up(component, 1000, member, task) for member in range(MEMBERS)]
    clients = seeded(bench, http, MEMBERS)
    waiting: Future[float] = pool.submit(verify, clients[0], bodies[0])
    bench.command("checkpoint", "create", "cohort", "--resume", "by-caller")
    assert not waiting.done()
    rewards = [verify(clients[1], bodies[1]), waiting.result(timeout=60)]
    bench.command("checkpoint", "resume", "cohort")
    assert rewards == [3.5, 3.5]  # the judge gives 5 to the first response and 2 to the second one, in both orders
