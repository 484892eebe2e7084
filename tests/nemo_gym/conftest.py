"""A NeMo Gym per test, ended with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.nemo_gym.gym import Gym


@pytest.fixture
def gym(tmp_path: Path) -> Iterator[Gym]:
    made = Gym(tmp_path / "gym")
    try:
        yield made
    finally:
        made.end()


def other_pandas() -> Path:
    """A directory that holds another major version of pandas; `make nemo-gym-env` makes one. Skips without it."""
    directory = os.environ.get("GYMCKPT_OTHER_PANDAS", "")
    if not directory:
        pytest.skip("GYMCKPT_OTHER_PANDAS names no directory with another pandas")
    return Path(directory)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """Keeps no cookies between calls: those are each client's own."""
    with httpx.Client(timeout=60.0) as client:
        yield client
