"""One suite over every implementation of the store: `stores` runs each test four times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gymckpt.core.ids import Digest
from gymckpt.store import ArtifactStore, Backend, LocalStore, MemoryStore, StoreClient, serve_store

KINDS = ("memory", "local", "client of memory", "client of local")


@dataclass
class Subject:
    """A store as its user sees it, the back end behind it, and a way to damage a blob at rest."""

    store: ArtifactStore
    backend: Backend
    damage: Callable[[Digest], None]
    address: str = ""


def flip_in_file(directory: Path, digest: Digest) -> None:
    path = directory / "blobs.v1" / digest.blake3[:1].hex() / f"{digest.blake3.hex()}.{digest.size}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_in_memory(store: MemoryStore, digest: Digest) -> None:
    content = bytearray(store._blobs[digest])
    content[len(content) // 2] ^= 1
    store._blobs[digest] = bytes(content)


@pytest.fixture(params=KINDS)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    kind: str = request.param
    async with AsyncExitStack() as stack:
        damage: Callable[[Digest], None]
        backend: Any
        if kind.endswith("memory"):
            backend = MemoryStore()
            memory = backend
            damage = lambda digest: flip_in_memory(memory, digest)  # noqa: E731
        else:
            backend = await stack.enter_async_context(await LocalStore.open(tmp_path / "store"))
            damage = lambda digest: flip_in_file(tmp_path / "store", digest)  # noqa: E731
        if not kind.startswith("client"):
            yield Subject(backend, backend, damage)
            return
        server = await stack.enter_async_context(await serve_store(backend))
        client = await stack.enter_async_context(StoreClient(server.address))
        yield Subject(client, backend, damage, server.address)


@pytest.fixture
def store(subject: Subject) -> ArtifactStore:
    return subject.store
