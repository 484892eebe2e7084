"""The log of what servers have executed: one line each, in the file that EXECUTIONS (or another variable) names."""

from __future__ import annotations

import json
import os
from typing import Any


def append(line: dict[str, Any], variable: str = "EXECUTIONS") -> None:
    """One write, so that a killed process leaves whole lines."""
    file = os.open(os.environ[variable], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{json.dumps(line, sort_keys=True)}\n".encode())
    finally:
        os.close(file)
