"""The console script: says which extra is missing, or hands over to the commands."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

NEEDED = ("click", "rich")
MISSING_EXTRA = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits; the exit codes are those of `gymckpt.cli.exits`. `arguments` default to those of the process."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"gymckpt: the command line needs {' and '.join(missing)}, which the extra [cli] brings: pip install 'gymckpt[cli]'",
            file=sys.stderr,
        )
        sys.exit(MISSING_EXTRA)
    from gymckpt.cli.root import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
