"""Reading single fields: what is missing, malformed or out of bounds is refused by its path in the message."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from gymckpt.errors import InvalidField

HOUR = 3600.0
DAY = 24 * HOUR
SHORT_TEXT = 256

T = TypeVar("T")


def path(parent: str, name: str) -> str:
    """The path of field `name` in the message at `parent` ("" is the request itself)."""
    return f"{parent}.{name}" if parent else name


def within(parent: str, error: InvalidField) -> InvalidField:
    """The same refusal as seen from the request: `rollout_id ...` becomes `episodes[3].rollout_id ...`."""
    inner = error.field
    trimmed = inner.removeprefix("fence.")  # the one value that names its own path
    field = path(parent, trimmed) if trimmed else parent
    message = error.message
    described = field + message[len(inner) :] if inner and message.startswith(inner) else f"{field}: {message}"
    return InvalidField(described, field=field)


def built(make: Callable[..., T], parent: str, *args: Any) -> T:
    """`make(*args)` with refusals told by the path `parent`."""
    try:
        return make(*args)
    except InvalidField as error:
        raise within(parent, error) from error


def required(message: Message, name: str, parent: str = "") -> Any:
    """The submessage `name`, or of a oneof the name of the member that is set. Raises InvalidField when it is unset."""
    where = path(parent, name)
    if name in message.DESCRIPTOR.oneofs_by_name:
        member = message.WhichOneof(name)
        if member is None:
            choices = ", ".join(field.name for field in message.DESCRIPTOR.oneofs_by_name[name].fields)
            raise InvalidField(f"{where} is required: one of {choices}", field=where)
        return member
    if not message.HasField(name):
        raise InvalidField(f"{where} is required", field=where)
    return getattr(message, name)


def enum_of(kind: Callable[[int], T], number: int, field: str) -> T:
    """The value with this number. Raises InvalidField for zero (missing) and for numbers outside the list."""
    if number == 0:
        raise InvalidField(f"{field} is required", field=field)
    try:
        return kind(number)
    except ValueError as unknown:
        raise InvalidField(f"{field} has no value {number}", field=field) from unknown


def text(value: str, field: str, *, most: int = SHORT_TEXT, need: bool = False) -> str:
    """Returns `value`; raises InvalidField when it has more than `most` characters, or none where one is needed."""
    if need and not value:
        raise InvalidField(f"{field} is required", field=field)
    if len(value) > most:
        raise InvalidField(f"{field} has {len(value)} characters, at most {most} are allowed", field=field)
    return value


def number(value: int, field: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Returns `value`; raises InvalidField outside `least` to `most`."""
    if not least <= value <= most:
        raise InvalidField(f"{field} must be {least} to {most}, got {value}", field=field)
    return value


def size(values: Any, field: str, *, most: int, least: int = 0) -> None:
    """Raises InvalidField unless a list, map or byte string has `least` to `most` entries."""
    if len(values) < least:
        raise InvalidField(f"{field} is required: at least {least}, got {len(values)}", field=field)
    if len(values) > most:
        raise InvalidField(f"{field} has {len(values)} entries, at most {most} are allowed", field=field)


def duration(message: Message, name: str, *, longest: float, default: float | None = None, parent: str = "") -> float:
    """Seconds of the Duration `name`: positive and at most `longest`; unset and zero give the default if there is one."""
    where = path(parent, name)
    value: Duration = getattr(message, name)
    mixed = value.seconds * value.nanos < 0
    if mixed or abs(value.nanos) > 999_999_999:
        raise InvalidField(f"{where} is not a duration: {value.seconds} s and {value.nanos} ns", field=where)
    seconds = value.seconds + value.nanos / 1e9
    if seconds == 0:
        if default is not None:
            return default
        raise InvalidField(f"{where} is required, and positive", field=where)
    if not 0 < seconds <= longest:
        raise InvalidField(f"{where} must be positive and at most {longest:g} s, got {seconds:g} s", field=where)
    return seconds


def duration_to_proto(seconds: float) -> Duration:
    """A Duration of whole nanoseconds. Raises InvalidField for what is not a finite number."""
    if not math.isfinite(seconds):
        raise InvalidField(f"a duration must be finite, got {seconds}", field="duration")
    whole = Duration()
    whole.FromNanoseconds(round(seconds * 1e9))
    return whole


def each(decode: Callable[[Any, str], T], items: Iterable[Any], field: str) -> tuple[T, ...]:
    """Decodes a list, telling each item by `field[index]`."""
    return tuple(decode(item, f"{field}[{at}]") for at, item in enumerate(items))
