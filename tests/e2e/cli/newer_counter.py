"""`python -m tests.e2e.cli.newer_counter`: the counter server of a release that keeps its sessions in another way."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from gymckpt.participant import MappingState
from servers.resources.counter import app
from servers.resources.counter.__main__ import main


class NewerState(MappingState[Any]):
    def __init__(self, sessions: dict[str, Any], schema: str) -> None:
        super().__init__(sessions, schema=schema.replace("/1", "/2"))


if __name__ == "__main__":
    with patch.object(app, "MappingState", NewerState):
        main()
