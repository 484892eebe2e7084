"""Receipts: a repeatable mutation that comes again is answered, not applied again."""

from __future__ import annotations

from collections.abc import Sequence

import blake3

from gymckpt.core.manifest import Receipt
from gymckpt.core.sessions import Session
from gymckpt.errors import ArgumentConflict, Conflict

MAX_RECEIPT = 2**20  # bytes of an answer that is kept
UNKEPT = 0  # status of a receipt whose answer was larger: it was given once, and the call is still not applied twice


def digest_of_request(method: str, target: str, body: Sequence[bytes]) -> bytes:
    """BLAKE3 of what makes two requests the same; the target is without the rollout, which changes with the attempt."""
    digest = blake3.blake3(f"{method} {target}\n".encode())
    for chunk in body:
        digest.update(chunk)
    return digest.digest()


def receipt_for(
    request_id: str,
    request: bytes,
    revision: int,
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: Sequence[bytes],
) -> Receipt:
    """The receipt of an answer. A cookie is the first caller's; a large body is not kept."""
    if sum(map(len, body)) > MAX_RECEIPT:
        return Receipt(request_id, request, revision, UNKEPT, (), b"")
    kept = tuple((name, value) for name, value in headers if name.lower() != b"set-cookie")
    return Receipt(request_id, request, revision, status, kept, b"".join(body))


def matching(session: Session, request_id: str, request: bytes) -> Receipt | None:
    """The stored answer of this request, if it was carried out.

    Raises ArgumentConflict when its id was used for another request, Conflict when its answer was not kept.
    """
    receipt = session.receipts.get(request_id)
    if receipt is None:
        return None
    if receipt.request != request:
        raise ArgumentConflict(
            f"request id {request_id!r} was used in session {session.key!r} for another request ({receipt.request.hex()[:16]} against {request.hex()[:16]})"
        )
    if receipt.status == UNKEPT:
        raise Conflict(
            f"request {request_id!r} was carried out in session {session.key!r} (revision {receipt.revision}); its answer was over {MAX_RECEIPT} bytes and is "
            "not kept: it is neither given nor applied again"
        )
    return receipt
