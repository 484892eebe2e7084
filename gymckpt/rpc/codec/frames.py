"""The two messages that carry megabytes, written and read without the copies of the generated code.

The bytes are those of the generated messages; a message of any other form is left to them.
"""

from __future__ import annotations

from collections.abc import Callable

from gymckpt.core.chunks import DIGEST_BYTES, Content
from gymckpt.v1 import artifact_store_pb2

_OFFSET, _DATA, _BLAKE3 = 0x08, 0x12, 0x1A  # tags in Frame
_WRITE_FRAME = 0x1A  # WriteRequest.frame
_READ_FRAME = 0x12  # ReadResponse.frame

Frame = tuple[int, memoryview, bytes]


def encode_frame_request(offset: int, content: Content, blake3: bytes) -> bytes:
    """A WriteRequest with one frame."""
    head = (bytes([_OFFSET]) + _varint(offset) if offset else b"") + bytes([_DATA]) + _varint(len(content))
    tail = bytes([_BLAKE3, DIGEST_BYTES])
    size = len(head) + len(content) + len(tail) + DIGEST_BYTES
    return b"".join((bytes([_WRITE_FRAME]), _varint(size), head, content, tail, blake3))


def decode_read_response(data: bytes) -> Frame | artifact_store_pb2.ReadResponse:
    """Offset, content and digest of a frame; everything else as the generated message."""
    frame = _frame_in(data) if data[:1] == bytes([_READ_FRAME]) else None
    return artifact_store_pb2.ReadResponse.FromString(data) if frame is None else frame


def write_request_serializer() -> Callable[[artifact_store_pb2.WriteRequest | bytes], bytes]:
    """Serializes WriteRequests, and passes on what encode_frame_request made."""
    return lambda request: request if isinstance(request, bytes) else request.SerializeToString()


def _frame_in(data: bytes) -> Frame | None:
    """The frame, when its fields come in the order of their numbers and nothing follows."""
    size, at = _read_varint(data, 1)
    if at + size != len(data):
        return None
    offset = 0
    if data[at : at + 1] == bytes([_OFFSET]):
        offset, at = _read_varint(data, at + 1)
    if data[at : at + 1] != bytes([_DATA]):
        return None
    length, at = _read_varint(data, at + 1)
    end = at + length
    if data[end : end + 2] != bytes([_BLAKE3, DIGEST_BYTES]) or end + 2 + DIGEST_BYTES != len(data):
        return None
    return offset, memoryview(data)[at:end], data[end + 2 :]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number and where it ends; a number that the data cuts off is -1, which fits nothing."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return -1, at
