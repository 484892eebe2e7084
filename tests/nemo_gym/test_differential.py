"""Our workplace server against the shipped one: the same seeded random calls, and after each of them the same answer and the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from fastapi import FastAPI
from resources_servers.workplace_assistant import app as shipped

from gymckpt.nemo_gym.adapters.workplace_assistant import TABLES
from servers.execution_log import ExecutionLog
from servers.resources.workplace_assistant.app import workplace_app
from servers.resources.workplace_assistant.tables import CSV_FILES, TABLE_NAMES, Tables, read_tables
from servers.resources.workplace_assistant.tools import TOOLS
from tests.nemo_gym.embedded import made
from tests.nemo_gym.random_calls import TABLES_OF, RandomCalls
from tests.nemo_gym.result import note

CALLS, SESSION = 500, 50
"""Calls of each toolkit, and how many of them make one session: long enough for changes to pile up."""

NAME = "workplace_assistant"


@dataclass(frozen=True)
class Both:
    """The two servers in this process, and where each keeps its sessions."""

    ours: FastAPI
    sessions: dict[str, Tables]
    theirs: FastAPI
    containers: dict[str, Any]

    def tables(self) -> tuple[Tables, dict[str, Any]]:
        """The tables of the one session, ours and as containers of attributes."""
        (ours,), (theirs,) = self.sessions.values(), self.containers.values()
        return ours, theirs["containers"]

    def forget(self) -> None:
        self.sessions.clear()
        self.containers.clear()


@pytest.fixture
def both() -> Both:
    folder = Path(shipped.__file__).parent
    pristine = read_tables({table: next(folder.rglob(file)) for table, file in CSV_FILES.items()})
    sessions: dict[str, Tables] = {}
    server = made(shipped.WorkbenchResourcesServer, NAME, {})
    theirs = server.setup_webserver()
    server.setup_liveness(theirs)
    ours = workplace_app(NAME, pristine, ExecutionLog(NAME), sessions)
    return Both(ours, sessions, theirs, server.session_id_to_tool_env)


def client(app: FastAPI) -> httpx.AsyncClient:
    """What a server fails at is an answer too, as it is over a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://gym")


def description(frame: pd.DataFrame) -> str:
    """All that an answer could show of a frame: None, NaN and "nan" differ, and so do 1, 1.0 and True."""
    index = frame.index
    labels = (index.start, index.stop, index.step) if isinstance(index, pd.RangeIndex) else index.tolist()
    cells = [frame[column].tolist() for column in frame.columns]
    return repr((frame.columns.tolist(), [*map(str, frame.dtypes)], str(index.dtype), labels, cells))


def pairs(ours: Tables, theirs: dict[str, Any]) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Name of a table, our frame and theirs."""
    for name, place in zip(TABLE_NAMES, TABLES, strict=True):
        container, _, attribute = place.partition(".")
        yield name, getattr(ours, name), getattr(theirs[container], attribute)


class Session:
    """One session on both servers. Differences are noted as text, the place of the first one in front."""

    def __init__(self, both: Both, toolkit: str, seed: str) -> None:
        self._both, self._toolkit, self._seed = both, toolkit, seed
        self.tried = 0
        self.differences: list[str] = []
        self._described: dict[str, tuple[pd.DataFrame, str]] = {}
        self.answers: dict[str, set[tuple[int, bytes]]] = {}

    async def play(self) -> None:
        async with client(self._both.ours) as ours, client(self._both.theirs) as theirs:
            for server in (ours, theirs):
                assert (await server.post("/seed_session", json={})).status_code == 200
            tables, containers = self._both.tables()
            others = {name: (left, right) for name, left, right in pairs(tables, containers)}
            calls = RandomCalls(self._seed, self._toolkit, tables)
            while self.tried < SESSION and not self.differences:
                tool, body = calls.next()
                sent = {"content": body, "headers": {"content-type": "application/json"}}
                answers = [await server.post(f"/{tool}", **sent) for server in (ours, theirs)]  # type: ignore[arg-type]
                self._compare(f"{tool} {body!r}", *[(answer.status_code, answer.content) for answer in answers])
                for name, left, right in pairs(tables, containers):
                    if name in TABLES_OF[self._toolkit]:
                        self._compare(f"{name} after {tool} {body!r}", self._ours(name, left), description(right))
                    else:  # nobody's to change; whether it was changed in place is seen at the end
                        self._compare(name, others[name][0] is left, others[name][1] is right)
                self.tried += 1
                self.answers.setdefault(tool, set()).add((answers[1].status_code, answers[1].content))
            for name, left, right in pairs(tables, containers):
                self._compare(f"{name} at the end", description(left), description(right))
        self._both.forget()

    def _ours(self, name: str, frame: pd.DataFrame) -> str:
        """As `description`. Our tools put a new frame in an old one's place, so the same frame is described once."""
        if self._described.get(name, (None, ""))[0] is not frame:
            self._described[name] = frame, description(frame)
        return self._described[name][1]

    def _compare(self, what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            self.differences.append(
                f"{self._seed}, call {self.tried}: {what[:300]}: {str(ours)[:300]} and {str(theirs)[:300]}"
            )


@pytest.mark.filterwarnings("ignore")  # as in a server's own process: pandas warns of patterns with groups
async def test_random_calls_get_the_answers_of_the_shipped_server_and_leave_the_same_tables(both: Both) -> None:
    """X01, P01."""
    played: list[Session] = []
    for toolkit in TABLES_OF:
        for number in range(CALLS // SESSION):
            played.append(Session(both, toolkit, f"{toolkit}/{number}"))
            await played[-1].play()
    tried = sum(session.tried for session in played)
    different = [session.differences[0] for session in played if session.differences]
    note("differential_calls", tried=tried, different=len(different))
    assert different == []
    assert tried == CALLS * len(TABLES_OF)
    answers = {tool: {answer for session in played for answer in session.answers.get(tool, ())} for tool in TOOLS}
    assert {status for some in answers.values() for status, _ in some} >= {200, 400, 422}
    assert {tool: len(some) for tool, some in answers.items() if len(some) < 5} == {}, "the calls tell little of these"
