"""One kept process: real ones, that end, hang and leave children behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gymckpt.errors import InvalidField
from gymckpt.supervisor import Program
from gymckpt.supervisor.keeper import Keeper

PATIENCE = 20.0


class Kept:
    """A keeper in a task, and what it told."""

    def __init__(self, *command: str, log: Path | None = None) -> None:
        self.started: list[int] = []
        self.died: list[int] = []
        self._news = asyncio.Event()
        program = Program("x", command, log=log)
        self.keeper = Keeper(
            program, 0.01, lambda _, pid: self._note(self.started, pid), lambda _, code: self._note(self.died, code)
        )
        self.task = asyncio.create_task(self.keeper.keep())

    def _note(self, where: list[int], what: int) -> None:
        where.append(what)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._news.clear()
                await self._news.wait()


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def alive(pid: int) -> bool:
    """Running, and not only unburied."""
    return running(pid) and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


async def test_what_ends_is_started_again_whatever_its_status() -> None:
    kept = Kept(sys.executable, "-c", "raise SystemExit(3)")
    await kept.until(lambda: len(kept.started) >= 3)
    await kept.keeper.stop(PATIENCE)
    await kept.task
    assert set(kept.died) == {3}
    assert len(set(kept.started)) == len(kept.started)


async def test_a_killed_process_takes_what_it_started_with_it(tmp_path: Path) -> None:
    """V03: an orphan would go on as an older attempt."""
    child = tmp_path / "child"
    spawn = (
        "import pathlib, subprocess, sys; c = subprocess.Popen(['sleep', '600']);"
        f"pathlib.Path({str(child)!r}).write_text(str(c.pid)); print('up', flush=True); c.wait()"
    )
    log = tmp_path / "log"
    kept = Kept(sys.executable, "-c", spawn, log=log)
    await kept.until(lambda: bool(kept.started))
    async with asyncio.timeout(PATIENCE):
        while not log.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    orphan = int(child.read_text())
    os.kill(kept.started[0], signal.SIGKILL)
    await kept.until(lambda: bool(kept.died))
    async with asyncio.timeout(PATIENCE):
        while alive(orphan):  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(0.01)
    await kept.keeper.stop(PATIENCE)
    await kept.task


async def test_one_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    kept = Kept(sys.executable, "-c", deaf, log=log)
    await kept.until(lambda: bool(kept.started))
    async with asyncio.timeout(PATIENCE):
        while not log.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    await kept.keeper.stop(0.1)
    await kept.task
    assert not running(kept.started[0])
    assert kept.died == [], "nobody is told of an end that was asked for"


async def test_a_command_that_is_not_there_is_an_error_and_not_tried_for_ever() -> None:
    with pytest.raises(
        InvalidField, match=r"\[server.x\]: the command `/no/such/command --port 7` cannot be started: .*No such"
    ):
        await Kept("/no/such/command", "--port", "7").task
