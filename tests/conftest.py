"""Fixtures that every suite may use."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded data, named by GYMCKPT_SHARED or found beside the repository."""
    folder = Path(os.environ.get("GYMCKPT_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"recorded data is absent: {folder} is not a folder (GYMCKPT_SHARED names another)")
    return folder


def pytest_sessionstart() -> None:
    """A runner started in the background of a script ignores SIGINT, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
