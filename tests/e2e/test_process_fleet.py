"""Starting, waiting for, and killing servers as processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from servers.demo.fleet import Fleet, Program, ServerFailed

COUNTER = Program("counter", "servers.resources.counter")
FAILS = Program("fails", "this")  # ends well, but never announces an address


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_started_server_answers_leads_its_group_and_dies_with_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(COUNTER)
    pid = fleet.pids["counter"]
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{fleet.address('counter')}/health")).status_code == 200
    assert os.getpgid(pid) == pid
    server = fleet.servers["counter"]
    await fleet.kill()
    assert gone(pid)
    assert server.returncode == -signal.SIGKILL
    assert fleet.servers == {}


async def test_a_stopped_server_ends_by_itself_and_another_takes_its_port(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await fleet.start(COUNTER)
    server, port = fleet.servers["counter"], fleet.port("counter")
    await fleet.stop()
    assert server.returncode == 0
    await fleet.start(Program("counter", "servers.resources.counter", ("--port", str(port))))
    assert fleet.port("counter") == port
    await fleet.kill()


async def test_a_server_that_never_serves_is_named_and_takes_nobody_with_it_that_would_stay(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    with pytest.raises(ServerFailed, match=r"fails \(this\) did not become ready: it ended with status 0"):
        await fleet.start(COUNTER, FAILS)
    started = set(fleet.pids.values())
    await fleet.kill()
    assert all(gone(pid) for pid in started)
    assert children() == set()


async def test_the_last_words_of_a_failed_server_are_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="unrecognized arguments: --nonsense"):
        await Fleet(tmp_path).start(Program("counter", "servers.resources.counter", ("--nonsense",)))


def children() -> set[str]:
    """Live processes that this one started."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())
