"""A server under a launcher that ends the whole run when one of its children dies: the child keeps the server instead."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def keep(command: Sequence[str]) -> int:
    """Runs the command, and again each time that a signal ends it; returns its exit code once it ends by itself.

    SIGINT and SIGTERM are passed on, and the end that they bring is final. The command dies with its keeper, however that ends (Linux only).
    """
    running: list[subprocess.Popen[bytes]] = []
    ending: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        ending.append(number)
        for process in running:
            process.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    while True:
        process = subprocess.Popen(command, preexec_fn=_die_with_parent)  # noqa: PLW1509 - a keeper has one thread
        running[:] = [process]
        if ending:  # it came while nothing was running
            process.send_signal(ending[-1])
        code = process.wait()
        if code >= 0 or ending:
            return code if code >= 0 else 128 - code
        told = f"process {process.pid} ended by {signal.Signals(-code).name}: starting it again"
        sys.stderr.write(f"gymckpt: {told}: {' '.join(command)}\n")


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
