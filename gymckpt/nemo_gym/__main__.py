"""`python -m gymckpt.nemo_gym run|wrap`: see README.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gymckpt.errors import GymckptError
from gymckpt.nemo_gym.launch import run, wrap


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gymckpt.nemo_gym")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run one server as a participant, without the gym command line")
    running.add_argument(
        "server", help="module:Class, e.g. resources_servers.workplace_assistant.app:WorkbenchResourcesServer"
    )
    wrapping = commands.add_parser("wrap", help="make directories for `gym env start --search-dir`")
    wrapping.add_argument("root", type=Path)
    wrapping.add_argument(
        "component", nargs="+", help="shipped server, e.g. workplace_assistant; name all in one command"
    )
    given = parser.parse_args()
    try:
        if given.command == "run":
            run(given.server)
        else:
            for made in wrap(given.root, given.component):
                sys.stdout.write(f"{made}\n")
    except GymckptError as error:
        sys.stderr.write(f"error: {error.message} [{error.reason}]\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
