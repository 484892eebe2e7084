"""A kept process is started again when a signal ended it, and not otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

KEPT = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


def keeper(program: str) -> subprocess.Popen[str]:
    keeping = f"import sys; from gymckpt.keep import keep; sys.exit(keep([sys.executable, '-c', {program!r}]))"
    words = [sys.executable, "-c", keeping]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kept(keeping: subprocess.Popen[str]) -> int:
    """The process that it runs now, once that says so."""
    assert keeping.stdout is not None
    return int(keeping.stdout.readline())


@pytest.fixture
def keeping() -> Iterator[subprocess.Popen[str]]:
    started = keeper(KEPT)
    yield started
    started.kill()
    started.communicate()


def test_a_process_that_a_signal_ended_is_started_again_and_that_is_told(keeping: subprocess.Popen[str]) -> None:
    """X14."""
    first = kept(keeping)
    os.kill(first, signal.SIGKILL)
    second = kept(keeping)
    os.kill(second, signal.SIGKILL)
    third = kept(keeping)
    assert len({first, second, third}) == 3
    keeping.terminate()
    _, told = keeping.communicate(timeout=20)
    assert told.count("ended by SIGKILL: starting it again") == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_keeper_ends_the_process_for_good(keeping: subprocess.Popen[str], number: int) -> None:
    """X23."""
    running = kept(keeping)
    keeping.send_signal(number)
    said, told = keeping.communicate(timeout=20)
    assert keeping.returncode != 0
    assert (said, "starting it again" in told) == ("", False)
    with pytest.raises(ProcessLookupError):
        os.kill(running, 0)


def test_a_process_that_ends_by_itself_ends_its_keeper_alike() -> None:
    """X23."""
    ended = keeper("import sys; sys.exit(3)")
    ended.communicate(timeout=20)
    assert ended.returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_a_process_dies_with_its_keeper(keeping: subprocess.Popen[str]) -> None:
    """X23."""
    kept(keeping)
    keeping.kill()
    assert keeping.stdout is not None
    assert keeping.stdout.read() == "", "the pipe closes with the last process that holds it"
