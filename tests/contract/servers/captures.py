"""Recorded request and response pairs of a running NeMo Gym."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Exchange:
    """One pair; headers in the order of the wire, names in lower case."""

    server: str
    method: str
    path: str
    request_headers: list[tuple[str, str]]
    request: Any
    status: int
    response_headers: list[tuple[str, str]]
    response: Any

    def sent(self, header: str) -> list[str]:
        return [value for name, value in self.request_headers if name == header]

    def received(self, header: str) -> list[str]:
        return [value for name, value in self.response_headers if name == header]


def exchanges(shared: Path, pattern: str) -> list[Exchange]:
    """The exchanges of the files that match `pattern`, in the order in which they happened."""
    files = sorted(file for file in (shared / "data/nemo_gym_wire").glob(pattern) if "index" not in file.name)
    if not files:
        pytest.skip(f"recorded data is absent: no {pattern} in {shared}")
    return [_read(file) for file in files]


def _read(file: Path) -> Exchange:
    recorded = json.loads(file.read_text())
    request, response = recorded["request"], recorded["response"]
    return Exchange(
        recorded["server"],
        request["method"],
        request["path"],
        [(name.lower(), value) for name, value in request["headers"]],
        request["body"],
        int(response["status"].split()[1]),
        [(name.lower(), value) for name, value in response["headers"]],
        response["body"],
    )
