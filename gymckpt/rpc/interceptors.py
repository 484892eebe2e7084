"""What every method of every service does alike: strict requests, typed refusals, logged accidents."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from gymckpt.errors import GymckptError, InvalidField
from gymckpt.rpc.status import to_status

PACKAGE = "gymckpt.v1"
# A newer caller asks these before it knows what this side speaks; what they carry beyond it is ignored.
NEGOTIATING = frozenset({"Describe", "GetInfo"})

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # generic only for the type checker
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
Decode = Callable[[bytes], Any]


class ProtocolInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the methods of `gymckpt.v1` services; those of others (health, reflection) pass untouched."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(f"/{PACKAGE}."):
            return handler
        return _wrapped(handler, method)


def check_known(message: Message, field: str = "") -> None:
    """Raises InvalidField naming the first unknown field number or enum value anywhere in `message`, which is at `field`."""
    if _has_lists(message.DESCRIPTOR):
        # Of 100,000 submessages the walk takes long: first see, by dropping what is unknown, whether there is any.
        known = type(message)()
        known.CopyFrom(message)
        known.DiscardUnknownFields()
        if known.ByteSize() != message.ByteSize():
            _refuse_unknown_fields(message, field)
    else:
        _refuse_unknown_fields(message, field)
    if _has_enums(message.DESCRIPTOR):
        _refuse_unknown_enums(message, field)


def _refuse_unknown_fields(message: Message, path: str) -> None:
    unknown_fields: Iterable[Any] = cast("Any", UnknownFieldSet)(message)
    for unknown in unknown_fields:
        where = path or message.DESCRIPTOR.name
        raise InvalidField(
            f"{where} has no field number {unknown.field_number}; this side speaks an older revision, leave it out",
            field=_joined(path, str(unknown.field_number)),
        )
    for name, child in _children(message):
        _refuse_unknown_fields(child, _joined(path, name))


def _refuse_unknown_enums(message: Message, path: str) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.enum_type is not None:
            value = getattr(message, field.name)
            for number in value if field.is_repeated else [value]:
                if number not in field.enum_type.values_by_number:
                    where = _joined(path, field.name)
                    raise InvalidField(f"{where} has no value {number} in {field.enum_type.name}", field=where)
    for name, child in _children(message):
        if _has_enums(child.DESCRIPTOR):
            _refuse_unknown_enums(child, _joined(path, name))


def _children(message: Message) -> list[tuple[str, Message]]:
    """Submessages that are set, with their names as in a path."""
    found: list[tuple[str, Message]] = []
    for field in message.DESCRIPTOR.fields:  # not ListFields, which copies the content of frames
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue  # the contract's maps hold no messages
        if field.is_repeated:
            found.extend((f"{field.name}[{at}]", child) for at, child in enumerate(getattr(message, field.name)))
        elif message.HasField(field.name):
            found.append((field.name, getattr(message, field.name)))
    return found


@functools.cache
def _has_lists(descriptor: Descriptor) -> bool:
    """Whether a message of this type can hold a list of messages anywhere."""
    return any(
        field.message_type is not None and (field.is_repeated or _has_lists(field.message_type))
        for field in descriptor.fields
    )


@functools.cache
def _has_enums(descriptor: Descriptor) -> bool:
    """Whether a message of this type can hold an enum value anywhere. The contract has no recursive types."""
    return any(
        field.enum_type is not None or (field.message_type is not None and _has_enums(field.message_type))
        for field in descriptor.fields
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _wrapped(handler: Handler, method: str) -> Handler:
    """The same method, taking raw bytes: so that malformed ones are refused by us and not by the transport."""
    strict = method.rpartition("/")[2] not in NEGOTIATING
    decode = functools.partial(_decoded, handler.request_deserializer, strict=strict)
    encode = handler.response_serializer
    if handler.request_streaming and handler.response_streaming:
        streams = _streaming(handler.stream_stream, functools.partial(_decoded_stream, decode), method)
        return grpc.stream_stream_rpc_method_handler(streams, None, encode)
    if handler.response_streaming:
        answers = _streaming(handler.unary_stream, decode, method)
        return grpc.unary_stream_rpc_method_handler(answers, None, encode)
    if handler.request_streaming:
        collects = _single(handler.stream_unary, functools.partial(_decoded_stream, decode), method)
        return grpc.stream_unary_rpc_method_handler(collects, None, encode)
    return grpc.unary_unary_rpc_method_handler(_single(handler.unary_unary, decode, method), None, encode)


def _decoded(deserialize: Decode | None, data: bytes, *, strict: bool) -> Any:
    try:
        message = cast("Decode", deserialize)(data)
    except DecodeError as malformed:
        raise InvalidField(f"the request is not a message of this method: {malformed}", field="request") from malformed
    if strict:
        check_known(message)
    return message


async def _decoded_stream(decode: Decode, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for request in requests:
        yield decode(request)


def _single(behavior: Any, decode: Callable[[Any], Any], method: str) -> Any:
    async def call(request: Any, context: Context) -> Any:
        try:
            return await behavior(decode(request), context)
        except GymckptError as refusal:
            await _refuse(context, refusal)
        except Exception as accident:
            log.exception("%s failed unexpectedly", method)
            await _fail(context, accident, method)

    return call


def _streaming(behavior: Any, decode: Callable[[Any], Any], method: str) -> Any:
    async def call(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async with aclosing(behavior(decode(request), context)) as answers:
                async for answer in answers:
                    yield answer
        except GymckptError as refusal:
            await _refuse(context, refusal)
        except Exception as accident:
            log.exception("%s failed unexpectedly", method)
            await _fail(context, accident, method)

    return call


async def _refuse(context: Context, refusal: GymckptError) -> None:
    status = to_status(refusal)
    await context.abort(status.code, status.details or "", status.trailing_metadata or ())


async def _fail(context: Context, accident: Exception, method: str) -> None:
    """Ends the call as a failure of the process, which callers see as TransportFailed."""
    await context.abort(grpc.StatusCode.INTERNAL, f"{method} failed unexpectedly: {type(accident).__name__}")
