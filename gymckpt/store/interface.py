"""The one interface of an artifact store: memory, local directory and client-over-server implement it and pass one suite.

Life of a blob: ask `find_missing`, write what is missing, name it in a manifest; a decision that publishes a manifest is accepted only when every blob below it
is durable. Blobs and names never change. Methods may be called concurrently; cancelling a call leaves the store consistent, and a repeated write stores once.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from gymckpt.core.ids import Digest


@dataclass(frozen=True, slots=True)
class NameEntry:
    """A name and what it holds."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """One blob that cannot be read back, and who needs it."""

    digest: Digest
    why: str
    checkpoint_ids: tuple[str, ...] = ()
    rollout_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """How far a scrub is; `damage` is what was found since the progress before."""

    blobs_checked: int
    bytes_checked: int
    damage: tuple[Damage, ...] = ()
    done: bool = False


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is and holds."""

    backend: str
    blobs: int
    bytes: int


class ArtifactStore(abc.ABC):
    """Keeps blobs by digest, and small create-only names. Every method may raise StoreUnavailable."""

    @abc.abstractmethod
    async def find_missing(self, digests: Sequence[Digest]) -> list[Digest]:
        """Those that are not durable here, in the order asked, each once."""

    @abc.abstractmethod
    async def write(self, blobs: Sequence[bytes]) -> list[Digest]:
        """Makes all of them durable, of any size, and returns their digests in order; an interrupted write of a large one goes on at its last durable chunk.

        Raises StoreFull; DamagedFrame when content changed on the way.
        """

    @abc.abstractmethod
    async def read(self, digests: Sequence[Digest]) -> list[bytes]:
        """Whole verified blobs in the order asked. Raises BlobNotFound, DamagedBlob."""

    @abc.abstractmethod
    def read_range(self, digest: Digest, offset: int = 0, length: int = 0) -> AsyncIterator[bytes]:
        """Verified frames of one blob from `offset` (a multiple of a frame), `length` bytes or to the end when 0. Raises BlobNotFound, DamagedBlob."""

    @abc.abstractmethod
    async def put_name(self, name: str, value: bytes, *, epoch: int = 0) -> bytes:
        """Creates the name, or leaves it; returns what it holds now. `epoch` is the caller's when it is a coordinator.

        Raises InvalidField, StaleEpoch, StoreFull, and MissingBlobs for a decision whose manifest lacks blobs.
        """

    @abc.abstractmethod
    async def get_name(self, name: str) -> bytes:
        """What the name holds. Raises NameNotFound."""

    @abc.abstractmethod
    async def list_names(self, prefix: str, *, after: str = "", limit: int = 0) -> list[NameEntry]:
        """Names below whole segments `prefix` ("" lists everything) in byte order, with their values.

        For pages: only those that follow the name `after`, and at most `limit` of them when it is not 0. Raises InvalidField.
        """

    @abc.abstractmethod
    async def delete_name(self, name: str, *, epoch: int = 0) -> None:
        """Deletes a name under members/, pins/ or floors/; one that does not exist is fine. Raises InvalidField, StaleEpoch."""

    @abc.abstractmethod
    def scrub(self) -> AsyncIterator[ScrubProgress]:
        """Checks every blob, quarantines damaged ones, names who needs what is damaged or missing."""

    @abc.abstractmethod
    async def info(self) -> StoreInfo:
        """What the store is and holds."""
