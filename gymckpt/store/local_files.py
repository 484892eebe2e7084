"""Files that survive a crash: written under a temporary name, synced, moved into place, and their directories synced.

Every system call on content goes through Files, so that a test can make any of them fail.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gymckpt.errors import GymckptError, StoreFull, StoreUnavailable

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class Files:
    """The file layer."""

    def write_synced(self, path: Path, *pieces: bytes | memoryview) -> None:
        """Creates or replaces the file and syncs it; its directory entry is not durable yet."""
        with self.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            for piece in pieces:
                self.write_all(file, piece)
            self.sync(file)

    def write_all(self, file: int, content: bytes | memoryview) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def sync_dir(self, path: Path) -> None:
        """Makes what was created, renamed and removed in the directory durable."""
        with self.opened(path, os.O_RDONLY | os.O_DIRECTORY) as file:
            os.fsync(file)

    def sync_all(self) -> None:
        """Makes durable what a process that was killed had moved into place without syncing the directory."""
        os.sync()

    def make_dir(self, path: Path) -> None:
        """Creates the directory if it is missing, and its entry durable."""
        path.mkdir(exist_ok=True)
        self.sync_dir(path.parent)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def link_new(self, source: Path, target: Path) -> bool:
        """Gives a synced file its name unless the name is taken; whether it got it."""
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def size(self, path: Path) -> int:
        """Bytes of the file; -1 when there is none."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return -1

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    @contextmanager
    def opened(self, path: Path, flags: int) -> Iterator[int]:
        file = self.open(path, flags)
        try:
            yield file
        finally:
            os.close(file)


@contextmanager
def as_store_errors(what: str) -> Iterator[None]:
    """Failures of the system as StoreFull or StoreUnavailable, saying what was being done."""
    try:
        yield
    except OSError as error:
        raise store_error(error, what) from error


def store_error(error: OSError, what: str) -> GymckptError:
    """StoreFull when there is no room, StoreUnavailable for everything else."""
    if error.errno in NO_SPACE:
        return StoreFull(f"no space left while {what}: {error}; free space, then retry", details={"doing": what})
    return StoreUnavailable(f"failed while {what}: {error}; check the directory, then retry", details={"doing": what})


class DirectoryLock:
    """Holds `path/lock` for this process. Raises StoreUnavailable when another holds it.

    The file names its holder, and is empty after a `release`: `after_kill` tells that the last holder did not get so far.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.after_kill = os.fstat(self._file).st_size > 0
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as held:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            self.drop()
            raise StoreUnavailable(
                f"the store at {path} is in use by process {holder}; stop it, or use another directory",
                details={"directory": str(path), "process": holder},
            ) from held
        except OSError:
            self.drop()
            raise

    def release(self) -> None:
        """After all that was answered is durable."""
        os.ftruncate(self._file, 0)
        self.drop()

    def drop(self) -> None:
        """As when the process is killed."""
        os.close(self._file)


def files_below(path: Path) -> Iterable[Path]:
    """Every file below a directory."""
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)
