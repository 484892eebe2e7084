"""What `make nemo-gym` found, in `build/nemo_gym.json`; each test adds its own line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

RESULT = Path(__file__).resolve().parents[2] / "build" / "nemo_gym.json"


_ADDED: dict[str, Counter[str]] = {}


def add(section: str, **counts: int) -> None:
    """Counts of several tests of this run, added up."""
    _ADDED.setdefault(section, Counter()).update(counts)
    note(section, **_ADDED[section])


def note(*place: str, **found: object) -> None:
    """Puts `found` at the place, e.g. `environments`, `workplace_assistant`; what other tests found stays."""
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    section = result
    for name in place[:-1]:
        section = section.setdefault(name, {})
    section[place[-1]] = found
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(f"{json.dumps(result, indent=1, sort_keys=True)}\n")
