"""Raw calls of any method with any bytes, and every way in which one field of a valid request can be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from gymckpt.errors import GymckptError
from gymckpt.rpc.status import from_rpc_error

UNKNOWN_FIELD = b"\xf8\xff\x03\x01"  # number 8191, varint 1
MALFORMED = b"\xff\xff\xff"
TOO_LONG = "x" * 70_000
TOO_LARGE = bytes(17 * 2**20)
SECONDS = 30.0


def as_is(content: bytes) -> bytes:
    return content


def call(channel: grpc.Channel, method: MethodDescriptor, content: bytes) -> Any:
    """Sends one message of these bytes; the error that the call ends with, None when it is answered."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    codecs: dict[str, Any] = {"request_serializer": as_is, "response_deserializer": as_is}
    sent: Any = iter([content]) if method.client_streaming else content
    try:
        if method.server_streaming:
            shape = channel.stream_stream if method.client_streaming else channel.unary_stream
            next(iter(shape(path, **codecs)(sent, timeout=SECONDS)), None)
        else:
            channel.unary_unary(path, **codecs)(sent, timeout=SECONDS)
    except grpc.RpcError as error:
        return error
    return None


def refusal(channel: grpc.Channel, method: MethodDescriptor, content: bytes) -> GymckptError:
    """The error as the protocol's own. Fails when the call is answered."""
    error = call(channel, method, content)
    assert error is not None, f"{method.name} took it"
    return from_rpc_error(error)


def wrong_fields(valid: Message, path: str = "") -> Iterator[tuple[str, Message]]:
    """For each field that has a wrong value at all: its path, and the valid message with that one field wrong."""
    for field in valid.DESCRIPTOR.fields:
        where = f"{path}{field.name}"
        single = getattr(valid, field.name)
        if isinstance(single, Message) and not isinstance(single, Duration):
            if valid.HasField(field.name):
                for inner, wrong in wrong_fields(single, f"{where}."):
                    yield inner, _with(valid, field.name, wrong)
            continue
        value = _wrong_value(field)
        if value is not None:
            yield where, _with(valid, field.name, value)


def _wrong_value(field: Any) -> Any:
    """Of a FieldDescriptor of any back end; None for fields of which every value is right."""
    if field.is_repeated:
        return [TOO_LONG] if field.type == FieldDescriptor.TYPE_STRING else None
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return Duration(seconds=-5)
    wrong = {
        FieldDescriptor.TYPE_STRING: TOO_LONG,
        FieldDescriptor.TYPE_BYTES: bytes(15 * 2**20 + 1),
        FieldDescriptor.TYPE_ENUM: 99,
        FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    }
    return wrong.get(field.type)


def _with(valid: Message, name: str, value: Any) -> Message:
    changed = type(valid)()
    changed.CopyFrom(valid)
    if isinstance(value, Message):
        getattr(changed, name).CopyFrom(value)
    elif isinstance(value, list):
        getattr(changed, name).extend(value)
    else:
        setattr(changed, name, value)
    return changed
