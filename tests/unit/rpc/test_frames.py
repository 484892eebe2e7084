"""The hand-written frame messages are the generated ones, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from gymckpt.rpc import codec
from gymckpt.v1 import artifact_store_pb2 as pb
from gymckpt.v1 import types_pb2

OFFSETS = st.integers(0, 2**36) | st.sampled_from([0, 1, 127, 128, 2**20, 2**63 - 1])
CONTENTS = st.binary(max_size=300)
DIGESTS = st.binary(min_size=32, max_size=32)


@given(OFFSETS, CONTENTS.filter(len), DIGESTS)
def test_a_frame_request_is_the_generated_message(offset: int, data: bytes, blake3: bytes) -> None:
    generated = pb.WriteRequest(frame=pb.Frame(offset=offset, data=data, blake3=blake3))
    assert codec.encode_frame_request(offset, memoryview(data), blake3) == generated.SerializeToString()


@given(OFFSETS, CONTENTS.filter(len), DIGESTS)
def test_a_frame_response_is_read_as_the_generated_message_would(offset: int, data: bytes, blake3: bytes) -> None:
    response = pb.ReadResponse(frame=pb.Frame(offset=offset, data=data, blake3=blake3))
    frame = codec.decode_read_response(response.SerializeToString())
    assert isinstance(frame, tuple)
    assert (frame[0], bytes(frame[1]), frame[2]) == (offset, data, blake3)


def test_the_empty_content_of_no_valid_frame_is_left_to_the_generated_code() -> None:
    response = pb.ReadResponse(frame=pb.Frame(blake3=b"\x01" * 32))
    assert codec.decode_read_response(response.SerializeToString()) == response


@pytest.mark.parametrize(
    "response",
    [
        pb.ReadResponse(batch=pb.Batch(data=b"x", sizes=[1], blake3=b"\x01" * 32)),
        pb.ReadResponse(begin=types_pb2.Digest(blake3=b"\x01" * 32, size=5)),
        pb.ReadResponse(frame=pb.Frame(offset=1, data=b"x", blake3=b"short")),
        pb.ReadResponse(frame=pb.Frame(offset=1, data=b"x")),
        pb.ReadResponse(),
    ],
)
def test_other_answers_are_the_generated_message(response: pb.ReadResponse) -> None:
    assert codec.decode_read_response(response.SerializeToString()) == response


@pytest.mark.parametrize(
    "order", [b"\x1a\x20" + b"\x01" * 32 + b"\x12\x01x", b"\x12\x01x\x08\x05\x1a\x20" + b"\x01" * 32]
)
def test_fields_in_another_order_are_left_to_the_generated_code(order: bytes) -> None:
    message: Any = codec.decode_read_response(b"\x12" + bytes([len(order)]) + order)
    assert message.frame.data == b"x"


@given(st.binary(max_size=80).map(lambda data: b"\x12" + data))
def test_garbage_is_read_alike_or_refused_alike(data: bytes) -> None:
    try:
        generated = pb.ReadResponse.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            codec.decode_read_response(data)
        return
    found = codec.decode_read_response(data)
    if isinstance(found, tuple):
        assert (found[0], bytes(found[1]), found[2]) == (
            generated.frame.offset,
            generated.frame.data,
            generated.frame.blake3,
        )
    else:
        assert found == generated


def test_other_requests_are_serialized_as_generated() -> None:
    serialize = codec.write_request_serializer()
    request = pb.WriteRequest(begin=types_pb2.Digest(size=5))
    assert serialize(request) == request.SerializeToString()
    assert serialize(b"made by hand") == b"made by hand"
