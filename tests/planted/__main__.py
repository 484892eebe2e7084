"""`python -m tests.planted <break> <module> <arguments>`: the server `module` with one thing broken in it."""

from __future__ import annotations

import runpy
import sys

from tests.planted.breaks import BREAKS


def main() -> None:
    _, broken, module, *arguments = sys.argv
    BREAKS[broken]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
