"""Directories whose store is on a small disk of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def small_store(directory: Path, size: str) -> Iterator[Path]:
    """The directory, with `store` in it on a disk of this size when this user may mount one."""
    store = directory / "store"
    store.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "gymckpt-test", str(store)]
    mounted = os.geteuid() == 0 and subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    try:
        yield directory
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(store)], check=True)
