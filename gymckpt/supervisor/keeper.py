"""One server, kept running: started again whenever it ends, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable
from typing import IO

from gymckpt.errors import InvalidField
from gymckpt.supervisor.config import CONFIG, Program

LONGEST_WAIT = 30.0  # seconds before another start
YOUNG = 10.0  # seconds; a server that dies younger is started later and later


class Keeper:
    """`started` and `died` are told of every start and every end that nobody asked for."""

    def __init__(
        self,
        program: Program,
        restart_after: float,
        started: Callable[[Program, int], None],
        died: Callable[[Program, int], None],
    ) -> None:
        self.program = program
        self.pid: int | None = None
        self._restart_after = restart_after
        self._started = started
        self._died = died
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def keep(self) -> None:
        """Returns after `stop`. Raises InvalidField when the command cannot be started at all."""
        loop, wait = asyncio.get_running_loop(), self._restart_after
        while not self._stopping.is_set():
            born = loop.time()
            code = await self._run()
            if self._stopping.is_set():
                return
            self._died(self.program, code)
            wait = self._restart_after if loop.time() - born > YOUNG else min(2 * wait, LONGEST_WAIT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()

    async def stop(self, within: float) -> None:
        """SIGTERM to its process group, and SIGKILL when it has not ended in time."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            _signal(process.pid, signal.SIGKILL)
            await process.wait()

    async def _run(self) -> int:
        try:
            self._process = process = await _start(self.program)
        except OSError as error:
            raise _cannot_start(self.program, error) from error
        self.pid = process.pid
        self._started(self.program, process.pid)
        try:
            return await process.wait()
        finally:
            # What it started dies with it: it would go on calling as an older attempt.
            _signal(process.pid, signal.SIGKILL)
            self.pid = None


async def _start(program: Program) -> asyncio.subprocess.Process:
    """Raises OSError when the command, its directory or its log cannot be used."""
    with contextlib.ExitStack() as stack:
        log: IO[bytes] | None = stack.enter_context(program.log.open("ab")) if program.log else None
        return await asyncio.create_subprocess_exec(
            *program.command,
            cwd=program.directory,
            env={**os.environ, **program.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log if log is not None else 2,  # what the supervisor says itself stays apart
            stderr=log,
            start_new_session=True,
        )


def _cannot_start(program: Program, error: OSError) -> InvalidField:
    table, command = f"server.{program.name}", shlex.join(program.command)
    return InvalidField(
        f"[{table}]: the command `{command}` cannot be started: {error}",
        field=f"{table}.command",
        details={CONFIG: table},
    )


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
