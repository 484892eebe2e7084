"""`python -m tests.e2e.uncaptured_counter`: the counter server of somebody who declared nothing, so that it is restart-only."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from gymckpt.participant import ResourcesParticipant
from servers.resources.counter import app
from servers.resources.counter.__main__ import main


def undeclared(name: str, **_declared: Any) -> ResourcesParticipant:
    """The participant without anything that says how to capture it."""
    return ResourcesParticipant(name)


if __name__ == "__main__":
    with patch.object(app, "ResourcesParticipant", undeclared):
        main()
