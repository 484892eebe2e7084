"""A NeMo Gym per test, ended with it."""

from __future__ import annotations

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


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """Keeps no cookies between calls: those are each client's own."""
    with httpx.Client(timeout=60.0) as client:
        yield client
