"""A lease: it ends when nothing was heard for its length. Times are monotonic seconds, passed in."""

from __future__ import annotations


class Lease:
    """Runs from `start` until `stop`, or until `expired` says that it is over."""

    def __init__(self) -> None:
        self._length = 0.0
        self._end: float | None = None

    def start(self, length: float, now: float) -> None:
        self._length, self._end = length, now + length

    def renew(self, now: float, length: float = 0.0) -> None:
        """Starts it again; `length` 0 keeps its length. One that does not run stays so."""
        if self._end is not None:
            self.start(length or self._length, now)

    def stop(self) -> None:
        self._end = None

    def remaining(self, now: float) -> float:
        """Seconds until it ends; 0 when it does not run."""
        return max(0.0, self._end - now) if self._end is not None else 0.0

    def expired(self, now: float) -> bool:
        return self._end is not None and now >= self._end
