"""Names in files. Everything here blocks: the store calls it in threads."""

from __future__ import annotations

import bisect
from pathlib import Path

from gymckpt.core.chunks import DIGEST_BYTES, hash_of
from gymckpt.core.names import is_below
from gymckpt.errors import DamagedBlob
from gymckpt.store.local_files import Files, as_store_errors, files_below
from gymckpt.store.local_layout import Layout


class LocalNames:
    """The names of one directory; which there are is known without the disk, values are read from it."""

    def __init__(self, layout: Layout, files: Files) -> None:
        self._layout = layout
        self._files = files
        self.all: list[str] = sorted(name for path in files_below(layout.names) if (name := layout.name_of(path)))
        # A name counts once its directory entry is durable.
        self._known = set(self.all)
        self._directories = {layout.names}

    def read(self, name: str) -> bytes | None:
        """The value; None when there is no such name. Raises DamagedBlob when its file is damaged."""
        if name not in self._known:
            return None
        with as_store_errors(f"reading name {name}"):
            try:
                content = self._files.read(self._layout.name(name))
            except FileNotFoundError:
                return None
        value = content[DIGEST_BYTES:]
        if hash_of(value) != content[:DIGEST_BYTES]:
            raise DamagedBlob(
                f"name {name} is damaged at rest; restore the directory from a copy", details={"name": name}
            )
        return value

    def create(self, name: str, value: bytes, temporary: Path) -> bool:
        """Creates the name durably; False, and nothing changed, when it exists."""
        path = self._layout.name(name)
        with as_store_errors(f"creating name {name}"):
            self._make_directory(path.parent)
            try:
                self._files.write_synced(temporary, hash_of(value), value)
                created = self._files.link_new(temporary, path)
            finally:
                self._files.remove(temporary)
            # A name that another writer made is answered as durable too.
            self._files.sync_dir(path.parent)
        if name not in self._known:
            self._known.add(name)
            bisect.insort(self.all, name)
        return created

    def _make_directory(self, path: Path) -> None:
        """With all above it, each durable."""
        if path not in self._directories:
            self._make_directory(path.parent)
            self._files.make_dir(path)
            self._directories.add(path)

    def remove(self, name: str) -> None:
        path = self._layout.name(name)
        with as_store_errors(f"deleting name {name}"):
            self._files.remove(path)
            if path.parent.is_dir():
                self._files.sync_dir(path.parent)
        if name in self._known:
            self._known.remove(name)
            del self.all[bisect.bisect_left(self.all, name)]

    def below(self, prefix: str, after: str, limit: int) -> list[tuple[str, bytes]]:
        """Names with their values in byte order."""
        chosen: list[tuple[str, bytes]] = []
        names = self.all[bisect.bisect_left(self.all, max(prefix, after)) :]
        for name in names:
            if not name.startswith(prefix):
                break
            if name != after and is_below(name, prefix) and (value := self.read(name)) is not None:
                chosen.append((name, value))
                if len(chosen) == limit:
                    break
        return chosen
