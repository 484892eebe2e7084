"""Encoding beside an event loop: the interpreter is handed over soon."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

SWITCH_SECONDS = 0.0005

_lock = threading.Lock()
_encoding = 0
_usual = 0.0


@contextlib.contextmanager
def yielding() -> Iterator[None]:
    """While any thread is in here, threads of this process change places after SWITCH_SECONDS and not after the usual 5 ms.

    The event loop waits for its turn each time that it has looked for news, several times for one call of a tool: with the usual interval calls took six
    times as long while an upload encoded. An interval that is shorter already stays.
    """
    global _encoding, _usual  # noqa: PLW0603 - the interval is one per process, so is the count
    with _lock:
        if _encoding == 0:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_usual, SWITCH_SECONDS))
        _encoding += 1
    try:
        yield
    finally:
        with _lock:
            _encoding -= 1
            if _encoding == 0:
                sys.setswitchinterval(_usual)
