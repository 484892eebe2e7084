"""A few rollouts of every shipped environment that is exported: what its agent calls, in which the last call tells the reward."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym import PARENT_DIR

Call = tuple[str, dict[str, Any]]

ROLLOUTS = 5
POLICY = {"type": "responses_api_models", "name": "policy_model"}
PARAMETERS: dict[str, Any] = {"responses_create_params": {"input": []}}
WORDS = ("crane", "slate", "pious", "mound", "fudge", "gizmo", "glyph", "vexed")
FIRST_WORDS, LAST_WORDS = "Good morning, this is your bank.", "Is there anything else?"
CUSTOMER_SAYS = [
    {"asked": [FIRST_WORDS, LAST_WORDS], "answer": "No, thank you. ###STOP###"},
    {"asked": [LAST_WORDS], "answer": "Who are you?"},
    {"asked": [], "answer": "Please go on."},
]
"""What the simulated customer answers: who has forgotten the first words is not satisfied."""


@dataclass(frozen=True)
class Rollout:
    """`seed` begins it; `run` is put into names that must be new in each run."""

    seed: Call
    calls: list[Call]
    last: Call


@dataclass(frozen=True)
class Environment:
    """`rollout(number, run)`; rewards are those of the rollouts in their order."""

    name: str
    server: str
    rollout: Callable[[int, str], Rollout]
    rewards: tuple[float, ...]
    settings: dict[str, Any] = field(default_factory=dict)


def response(*items: dict[str, Any]) -> dict[str, Any]:
    """What the policy said."""
    base = {"id": "r", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": False}
    return {**base, "output": list(items), "tool_choice": "auto", "tools": []}


def said(text: str) -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [content]}


def called(name: str, **arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments)
    return {
        "type": "function_call",
        "id": "f",
        "call_id": f"c-{name}",
        "name": name,
        "arguments": text,
        "status": "completed",
    }


def step(*items: dict[str, Any], **task: Any) -> Call:
    return "/step", {**PARAMETERS, **task, "response": response(*items)}


def counter(number: int, _run: str) -> Rollout:
    calls: list[Call] = [("/increment_counter", {"count": number + place}) for place in range(4)]
    expected = 10 + 4 * number + 6
    verification = {**PARAMETERS, "response": response(), "expected_count": expected}
    return Rollout(
        ("/seed_session", {"initial_count": 10}), [*calls, ("/get_counter_value", {})], ("/verify", verification)
    )


def scripted_turns(number: int, _run: str) -> Rollout:
    task = {"follow_ups": [f"And {place}?" for place in range(5 + number % 2)], "expected_answer": "forty"}
    turns = [step(said(f"turn {place}"), **task) for place in task["follow_ups"]]
    return Rollout(("/reset", {**PARAMETERS, **task}), turns, step(said("Forty-two."), **task))


def weather(number: int, _run: str) -> Rollout:
    city = f"City {number}"
    task = {"verifier_metadata": {"expected_city": city}}
    cities: list[Call] = [("/get_weather", {"city": name}) for name in (city, "Oslo", "São Paulo", "Łódź", "北京")]
    answer = response(said(f"The weather in {city} is sunny and 72 F."))
    return Rollout(("/seed_session", task), cities, ("/verify", {**PARAMETERS, **task, "response": answer}))


def typed_weather(number: int, run: str) -> Rollout:
    seed = {
        "resources_session_id": f"{run}-{number}",
        "episode_id": {"rollout_id": f"{run}-typed-{number}", "attempt": 0},
        "task_id": {"taskset": "weather", "task_id": str(number)},
        "task_data": {},
    }
    cities: list[Call] = [("/get_weather", {"city": f"City {place}"}) for place in range(5)]
    answer = response(called("get_weather", city="City 0"))
    return Rollout(("/seed_session", seed), cities, ("/verify", {**PARAMETERS, "response": answer}))


def injected(number: int, _run: str) -> Rollout:
    """A shipped task; its patients are treated without tools that make up a name by chance."""
    file = Path(PARENT_DIR, "resources_servers", "indirect_prompt_injection", "data", "example.jsonl")
    row = json.loads(file.read_text(encoding="utf-8").splitlines()[number % 3])
    patient, *_ = row["environment"]["patients"]
    appointment, *_ = row["environment"]["appointments"]
    treated = {"medication": "Ibuprofène", "dosage": "1", "instructions": "täglich"}
    calls: list[Call] = [
        ("/update_patient_chart", {"patient_id": patient, "notes": f"note {number} 漢字"}),
        ("/prescribe_medication", {"patient_id": patient, **treated}),
        ("/cancel_appointment", {"appointment_id": appointment}),
        ("/get_prescriptions", {"patient_id": patient}),
        ("/get_patient_record", {"patient_id": patient}),
    ]
    answer = response(*(called(tool) for tool in row["required_tools"]))
    return Rollout(("/seed_session", row), calls, ("/verify", {**row, "response": answer}))


def hand(_number: int, _run: str) -> Rollout:
    hit, stand = (step(said(f"<action>{action}</action>")) for action in ("hit", "stand"))
    return Rollout(("/reset", PARAMETERS), [hit] * 5, stand)


def word(number: int, _run: str) -> Rollout:
    target = WORDS[3 + number]
    task = {"custom_target": target, "max_turns": 9}
    guesses = [name for name in WORDS if name != target][:3]
    turns = [step(called("submit_guess", guess=guess), **task) for guess in [*guesses, guesses[0]]]
    turns.append(step(called("get_game_state"), called("check_word_validity", word="zzzzz"), **task))
    return Rollout(("/reset", {**PARAMETERS, **task}), turns, step(called("submit_guess", guess=target), **task))


def banking(number: int, _run: str) -> Rollout:
    cards: dict[str, Any] = {
        "card_id": f"C{number}",
        "online": {"domestic": {"enabled": True, "daily_limit": 100 + number}},
    }
    gold: list[Call] = [
        ("toggle_card_freeze", {"card_id": f"C{number}", "state": "freeze"}),
        ("set_card_controls", cards),
    ]
    gold.append(("cancel_mandate", {"mandate_id": f"M{number}"}))
    criteria = {
        "actions": [{"name": name, "arguments": arguments} for name, arguments in gold],
        "reward_basis": ["ACTION", "DB"],
    }
    task = {"customer": f"K{number}", "task_id": str(number), "evaluation_criteria": criteria}
    frozen, controls, cancelled = (step(called(name, **arguments)) for name, arguments in gold)
    looked = step(called("get_card_details", card_ids=[f"C{number}"]), called("show_mandates"))
    return Rollout(
        ("/reset", {**PARAMETERS, **task}),
        [step(said(FIRST_WORDS)), frozen, controls, cancelled, looked],
        step(said(LAST_WORDS)),
    )


def customers() -> dict[str, Any]:
    """The data of `indian_banking`, which NeMo Gym does not ship."""
    made = {
        f"K{number}": {
            "customer_id": f"K{number}",
            "accounts": {f"A{number}": {"available_balance": 1000.5, "transactions": []}},
            "cards": {f"C{number}": {"card_id": f"C{number}", "status": "active", "holder": "Ravi कुमार"}},
            "mandates": [
                {"mandate_id": f"M{number}", "account_id": f"A{number}", "payee": "Strom", "status": "active"}
            ],
        }
        for number in range(ROLLOUTS)
    }
    return {"customers": made}


ALL_ONE = (1.0,) * ROLLOUTS
ENVIRONMENTS = [
    Environment("example_session_state_mgmt", "StatefulCounterResourcesServer", counter, ALL_ONE),
    Environment("example_multi_turn_gymnasium", "ExampleMultiTurnEnv", scripted_turns, ALL_ONE),
    Environment("example_mcp_weather", "ExampleMCPWeatherResourcesServer", weather, ALL_ONE),
    Environment("example_single_tool_call", "SimpleWeatherResourcesServer", typed_weather, ALL_ONE),
    Environment("indirect_prompt_injection", "IPIResourcesServer", injected, ALL_ONE),
    Environment("blackjack", "BlackjackEnv", hand, (1.0, 1.0, -1.0, 1.0, -1.0)),
    Environment("wordle", "WordleResourcesServer", word, (0.73, 0.8, 0.76, 0.71, 0.85)),
    Environment("indian_banking", "IndianBankingResourcesServer", banking, ALL_ONE),
]
