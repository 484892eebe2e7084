"""Adapters of shipped servers: a restored session plays on as the one that was frozen, and equal state gives equal bytes."""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import numpy
import pytest
from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.blackjack.app import BlackjackEnv
from resources_servers.gymnasium import GymnasiumServer
from resources_servers.wordle.app import WordleGameState, WordleResourcesServer
from resources_servers.workplace_assistant.app import WorkbenchResourcesServer
from resources_servers.workplace_assistant.utils import get_tools

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym import GymnasiumAdapter, MappingAdapter, RestartOnly, declare
from gymckpt.nemo_gym.adapters import adapter_of
from gymckpt.nemo_gym.adapters.base import _REGISTRY
from gymckpt.nemo_gym.adapters.workplace_assistant import TABLES, TOOLKITS
from gymckpt.participant import Capture
from gymckpt.tables import MalformedPartsError
from tests.nemo_gym.calls import SESSION
from tests.nemo_gym.embedded import made


def restored(server_class: Any, first: Any) -> Any:
    """A second server that holds the session `s` of the first one."""
    exporter, second = adapter_of(server_class)(first), made(server_class, "second", {})
    frozen = exporter.freeze("s")
    parts = exporter.encode(frozen)
    assert parts == exporter.encode(exporter.freeze("s"))
    importer = adapter_of(server_class)(second)
    assert not importer.holds("s")
    importer.install("s", importer.load(parts))
    assert importer.holds("s")
    assert importer.encode(importer.freeze("s")) == parts
    return second


def action(*items: dict[str, Any]) -> NeMoGymResponse:
    base = {"id": "r", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": False}
    return NeMoGymResponse.model_validate({**base, "output": list(items), "tool_choice": "auto", "tools": []})


def said(text: str) -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [content]}


@pytest.mark.parametrize("game", range(8))
async def test_blackjack_deals_the_same_cards_after_a_restore(game: int) -> None:
    """R08: the unseeded generator is part of the state."""
    first = made(BlackjackEnv, "first", {})
    await first.reset({}, "s")
    second = restored(BlackjackEnv, first)
    hit = action(said("<action>hit</action>"))
    for _ in range(12):
        dealt, again = await first.step(hit, {}, "s"), await second.step(hit, {}, "s")
        assert dealt == again


class Dice(GymnasiumServer):  # type: ignore[misc]
    """An environment of a user: its sessions hold plain data and generators, at any depth."""

    ray_enabled = False

    async def step(self, action: Any, metadata: dict[str, Any], session_id: str | None = None) -> Any:
        state = self.session_state[session_id]
        state["thrown"].append([state["python"].randint(1, 6), state["numpy"][0]["pcg"].random()])
        return str(state["numpy"][1].normal()), state["python"].gauss(), False, False, {}


@declare(f"{__name__}:Dice")
class DiceAdapter(GymnasiumAdapter):
    schema = "tests/dice/1"


def dice() -> dict[str, Any]:
    generators = [{"pcg": numpy.random.default_rng()}, numpy.random.Generator(numpy.random.MT19937())]
    own = {"$own": [{"$": 1}], "$random.Random": {"$random.Random": [None]}}
    return {
        "python": random.Random(),
        "numpy": generators,
        "thrown": [],
        "own": own,
        "big": 2**70,
        "nan": [float("inf")],
    }


async def test_a_users_environment_goes_on_with_its_generators() -> None:
    """R08, C44: Python's and numpy's, between two numbers of a pair as well; keys that look like the adapter's own are kept."""
    first = made(Dice, "first", {})
    first.session_state["s"] = dice()
    for _ in range(5):
        second = restored(Dice, first)
        for key in ("thrown", "own", "big", "nan"):
            assert second.session_state["s"][key] == first.session_state["s"][key]
        for _ in range(3):
            assert await first.step(None, {}, "s") == await second.step(None, {}, "s")


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (lambda generator: {"a": generator, "b": [generator]}, "one Random in two places"),
        (lambda _: {"a": (1, 2)}, "value.a is tuple"),
        (lambda _: {"a": random.SystemRandom()}, "not plain data"),
        (lambda _: {"a": {1: "x"}}, "keys must be text"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(held: Any, problem: str) -> None:
    """C44, X20."""
    first = made(Dice, "first", {})
    first.session_state["s"] = held(random.Random())
    exporter = adapter_of(Dice)(first)
    with pytest.raises(ValueError, match=problem):
        exporter.encode(exporter.freeze("s"))


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"$random.Random":[3,[1],null]}',
        b'{"$numpy.random.Generator":{"bit_generator":"seed"}}',
        b'{"$random.Random":7}',
    ],
)
def test_a_generator_that_is_none_is_refused(damaged: bytes) -> None:
    """C11."""
    with pytest.raises((ValueError, TypeError)):
        adapter_of(Dice)(made(Dice, "first", {})).load({"value": damaged})


def test_wordle_keeps_letters_by_place_and_sets() -> None:
    """R08."""
    first = made(WordleResourcesServer, "first", {})
    played = {"turn": 2, "guesses": ["react"], "feedback_history": [["yellow", "green"]], "total_reward": 0.5}
    letters = {"known_greens": {3: "n", 0: "c"}, "known_yellows": {"r", "a"}, "eliminated_letters": {"t"}}
    first.session_state["s"] = WordleGameState("crane", 5, 6, **played, **letters)
    again = restored(WordleResourcesServer, first).session_state["s"]
    assert again == first.session_state["s"]
    assert list(again.known_greens) == [3, 0]


def execute_tool(server: Any, tool: str, arguments: dict[str, Any]) -> str:
    """As the server does it, errors included."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return str(server.session_id_to_tool_env["s"]["functions"][tool](**given))
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is an answer
        return str(error)


def test_workplace_tables_are_equal_after_every_call_and_another_pandas_is_refused() -> None:
    """R08, X20. What was frozen does not follow the tools."""
    first = made(WorkbenchResourcesServer, "first", {})
    first.session_id_to_tool_env["s"] = get_tools(list(TOOLKITS))
    exporter = adapter_of(WorkbenchResourcesServer)(first)
    frozen = exporter.freeze("s")
    before = exporter.encode(frozen)
    for tool, arguments in SESSION:
        execute_tool(first, tool, arguments)
        second = restored(WorkbenchResourcesServer, first)
        for name in TABLES:
            container, attribute = name.split(".")
            ours, theirs = (
                getattr(server.session_id_to_tool_env["s"]["containers"][container], attribute)
                for server in (first, second)
            )
            assert ours.equals(theirs), f"{name} after {tool}"
            assert list(ours.dtypes) == list(theirs.dtypes)
    assert exporter.encode(frozen) == before
    other = {name: part.replace(b'"pandas":"', b'"pandas":"9') for name, part in before.items()}
    with pytest.raises(MalformedPartsError, match="was made under pandas 9"):
        exporter.load(other)


def test_a_server_that_is_its_own_program_is_declared_by_the_name_of_its_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R03: `python app.py` calls the module `__main__`; one that is not declared is told of, with the name that a declaration needs."""
    program = types.ModuleType("__main__")
    program.__file__ = "/somewhere/my_notes.py"
    monkeypatch.setitem(sys.modules, "__main__", program)
    server = type("NotesServer", (), {"__module__": "__main__"})
    assert adapter_of(server) is RestartOnly
    assert "no adapter is declared for my_notes:NotesServer" in caplog.text
    monkeypatch.setitem(_REGISTRY, "my_notes:NotesServer", MappingAdapter)
    assert adapter_of(server) is MappingAdapter


def test_what_is_not_declared_is_restart_only_and_nothing_is_declared_twice() -> None:
    """R03."""

    class More(WorkbenchResourcesServer):  # type: ignore[misc]
        """May keep more than its base class."""

    assert adapter_of(More) is RestartOnly
    assert RestartOnly.capture is Capture.RESTART_ONLY
    with pytest.raises(InvalidField, match="has the adapter Blackjack already"):
        declare("resources_servers.blackjack.app:BlackjackEnv")(MappingAdapter)
