"""Where things lie in the directory of a local store.

lock                                  held by the process that uses the store
blobs.v1/ab/<hex>.<size>              a blob; ab are the first two digits
chunks.v1/<hex>.<size>                the chunk list of a large blob
partial.v1/<hex>.<size>               what is here of a large blob, and `.chunks`, the digests of its frames
names.v1/<segment>/<segment>@         BLAKE3 of the value, and the value of a name; the sign keeps `a` apart from `a/b`
quarantine.v1/<hex>.<size>            blobs that were found damaged
tmp.v1/                               files not moved into place yet; emptied when the store opens
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gymckpt.core.ids import Digest

SHARDS = [f"{number:02x}" for number in range(256)]

_BLOB = re.compile(r"([0-9a-f]{64})\.([0-9]{1,12})\Z")


@dataclass(frozen=True)
class Layout:
    """Paths of one store. Built from digests and checked names only, so none can lie outside of `root`."""

    root: Path

    @property
    def blobs(self) -> Path:
        return self.root / "blobs.v1"

    @property
    def chunk_lists(self) -> Path:
        return self.root / "chunks.v1"

    @property
    def partials(self) -> Path:
        return self.root / "partial.v1"

    @property
    def names(self) -> Path:
        return self.root / "names.v1"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine.v1"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp.v1"

    def directories(self) -> list[Path]:
        """All that exist from the start."""
        flat = [self.blobs, self.chunk_lists, self.partials, self.names, self.quarantine, self.temporary]
        return flat + [self.blobs / shard for shard in SHARDS]

    def shard(self, digest: Digest) -> Path:
        return self.blobs / digest.blake3[:1].hex()

    def blob(self, digest: Digest) -> Path:
        return self.shard(digest) / _file_name(digest)

    def chunk_list(self, digest: Digest) -> Path:
        return self.chunk_lists / _file_name(digest)

    def partial(self, digest: Digest) -> Path:
        return self.partials / _file_name(digest)

    def partial_chunks(self, digest: Digest) -> Path:
        return self.partials / f"{_file_name(digest)}.chunks"

    def quarantined(self, digest: Digest) -> Path:
        return self.quarantine / _file_name(digest)

    def name(self, name: str) -> Path:
        return self.names / f"{name}@"

    def name_of(self, path: Path) -> str:
        """The inverse of name(); "" for a file that is none."""
        text = path.relative_to(self.names).as_posix()
        return text[:-1] if text.endswith("@") else ""


def digest_of_file(path: Path) -> Digest | None:
    """The digest that a blob's file is named after; None for a file that is none."""
    found = _BLOB.match(path.name)
    return Digest(bytes.fromhex(found[1]), int(found[2])) if found else None


def _file_name(digest: Digest) -> str:
    return f"{digest.blake3.hex()}.{digest.size}"
