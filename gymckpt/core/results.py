"""Finished results, and what may be acknowledged of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gymckpt.core.ids import Digest, Episode
from gymckpt.errors import ReceiptMismatch

MAX_ACKNOWLEDGED = 1_000  # results in one acknowledgement


@dataclass(frozen=True, slots=True)
class FinishedResult:
    """A result that is kept until it is acknowledged. `durable`: a checkpoint that was published holds it."""

    episode: Episode
    body: Digest
    durable: bool

    @property
    def receipt(self) -> bytes:
        """BLAKE3 of the body, 32 bytes."""
        return self.body.blake3


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Whoever sends it needs no longer the result of `episode` that has this receipt (32 bytes)."""

    episode: Episode
    receipt: bytes


def nothing_kept(
    kept: Mapping[Episode, Collection[bytes]], acknowledgements: Iterable[Acknowledgement]
) -> tuple[Episode, ...]:
    """The acknowledged episodes of which nothing is kept, in order, each once; `kept` are the receipts of what is.

    Raises ReceiptMismatch for an episode of which only results with other receipts are kept.
    """
    unknown = set()
    for each in acknowledgements:
        receipts = kept.get(each.episode, ())
        if not receipts:
            unknown.add(each.episode)
        elif each.receipt not in receipts:
            [first, *_] = sorted(receipts)
            raise ReceiptMismatch(
                f"the result of {each.episode} has the receipt {first.hex()}, not {each.receipt.hex()}; nothing was acknowledged, list the results again",
                details={"episode": str(each.episode), "receipt": each.receipt.hex(), "kept": first.hex()},
            )
    return tuple(sorted(unknown))
