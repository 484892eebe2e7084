"""The execution log: what servers did, one line per executed call, in a file that outlives them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from gymckpt.participant import Call


def digest_of(value: Any) -> str:
    """BLAKE3 of a JSON value's canonical form, in hexadecimal."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake3(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class ExecutionLog:
    """Appends executed calls to a file shared by any number of processes; without a file it records nothing."""

    def __init__(self, server: str, file: Path | None = None) -> None:
        self._server = server
        self._descriptor = None if file is None else os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @property
    def on(self) -> bool:
        """Whether anything is recorded: what only the log needs may be left out otherwise."""
        return self._descriptor is not None

    def record(self, call: Call, what: str, arguments: Any, **noted: str) -> None:
        """Notes that `call` was carried out: the tool or route `what` with `arguments`, of which the digest is kept, and
        what else is `noted` of it.

        One line in one write: lines of several processes never mix.
        """
        if self._descriptor is None:
            return
        line = {
            "server": self._server,
            "pid": os.getpid(),
            "rollout": call.episode.rollout_id if call.episode else None,
            "attempt": call.episode.attempt if call.episode else None,
            "session": call.session,
            "call_id": call.request_id,
            "what": what,
            "arguments": digest_of(arguments),
            **noted,
        }
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LogReader:
    """Reads a log that is still being written, each line once.

    A last line without its end is just being written: a reader may see a write page by page.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._lines: list[Mapping[str, Any]] = []

    def lines(self) -> list[Mapping[str, Any]]:
        """All lines so far, oldest first; a file that nobody wrote yet is an empty log."""
        if self._file.exists():
            with self._file.open("rb") as log:
                log.seek(self._read)
                written, end, _ = log.read().rpartition(b"\n")
            self._read += len(written) + len(end)
            self._lines += [json.loads(line) for line in written.splitlines()]
        return self._lines


def read_log(file: Path) -> list[Mapping[str, Any]]:
    """All lines of a log; see LogReader."""
    return LogReader(file).lines()
