"""The interval at which threads change places is short while anybody encodes, and what it was afterwards."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gymckpt.participant.yielding import SWITCH_SECONDS, yielding


def near(seconds: float) -> Any:
    """The interpreter keeps whole microseconds."""
    return pytest.approx(seconds, abs=2e-6)


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_it_is_short_while_one_encodes_and_comes_back_after_a_failure(usual: float) -> None:
    seen = []

    def encode() -> None:
        with yielding():
            seen.append(sys.getswitchinterval())
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        encode()
    assert seen == [near(SWITCH_SECONDS)]
    assert sys.getswitchinterval() == usual


def test_it_is_short_until_the_last_of_several_threads_has_encoded(usual: float) -> None:
    inside, leave = threading.Event(), threading.Event()

    def encode() -> None:
        with yielding():
            inside.set()
            leave.wait(20)

    other = threading.Thread(target=encode)
    with yielding():
        other.start()
        assert inside.wait(20)
    assert sys.getswitchinterval() == near(SWITCH_SECONDS)
    leave.set()
    other.join()
    assert sys.getswitchinterval() == usual


def test_one_that_is_shorter_already_stays() -> None:
    sys.setswitchinterval(SWITCH_SECONDS / 5)
    with yielding():
        assert sys.getswitchinterval() == near(SWITCH_SECONDS / 5)
    assert sys.getswitchinterval() == near(SWITCH_SECONDS / 5)
