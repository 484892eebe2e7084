"""The names of the store: their form, and the families that carry rules. manifest.proto lists them all."""

from __future__ import annotations

import re

from gymckpt.errors import InvalidField

MAX_NAME = 512
MAX_SEGMENTS = 8
MAX_SEGMENT = 160
MAX_VALUE = 15 * 2**20

EPOCHS = "epochs"
DECISIONS = "decisions"
DELETED = "deleted"
RESTORE = "restore-"
DELETABLE = ("members", "pins", "floors")

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_EPOCH = re.compile(r"epochs/([0-9]{20})\Z")
_SHOWN = 200


def check_name(name: str, field: str = "name") -> str:
    """Returns `name`; raises InvalidField unless it is 1 to 8 segments of the alphabet of ids, joined by `/`."""
    if name == "":
        raise InvalidField(f"{field} is required", field=field)
    if len(name) > MAX_NAME:
        raise InvalidField(
            f"{field} has {len(name)} characters, at most {MAX_NAME} are allowed: {name[:_SHOWN]!r}", field=field
        )
    segments = name.split("/")
    if len(segments) > MAX_SEGMENTS:
        raise InvalidField(f"{field} has {len(segments)} segments, at most {MAX_SEGMENTS} are allowed", field=field)
    for segment in segments:
        if len(segment) > MAX_SEGMENT or _SEGMENT.match(segment) is None:
            raise InvalidField(
                f"{field} must be segments of [A-Za-z0-9][A-Za-z0-9._-]*, at most {MAX_SEGMENT} characters each, "
                f"got {segment[:_SHOWN]!r} in {name[:_SHOWN]!r}",
                field=field,
            )
    if segments[0] == EPOCHS and _EPOCH.match(name) is None:
        raise InvalidField(f"{field} of an epoch must be epochs/ and 20 digits, got {name[:_SHOWN]!r}", field=field)
    return name


def check_prefix(prefix: str, field: str = "prefix") -> str:
    """Returns `prefix`; raises InvalidField unless it is empty or whole segments."""
    if prefix == "" or prefix == EPOCHS:
        return prefix
    return check_name(prefix, field)


def check_value(value: bytes, field: str = "value") -> bytes:
    """Returns `value`; raises InvalidField above 15 MiB."""
    if len(value) > MAX_VALUE:
        raise InvalidField(f"{field} has {len(value)} bytes, at most {MAX_VALUE} are allowed", field=field)
    return value


def check_epoch(epoch: int, field: str = "epoch") -> int:
    """Returns `epoch`; raises InvalidField outside 0 to 2^63-1, where 0 is a caller that is no coordinator."""
    if not 0 <= epoch < 2**63:
        raise InvalidField(f"{field} must be from 0, got {epoch}", field=field)
    return epoch


def check_deletable(name: str, field: str = "name") -> str:
    """Returns `name`; raises InvalidField unless it lies in a family whose names may be deleted."""
    family, slash, _ = check_name(name, field).partition("/")
    if not slash or family not in DELETABLE:
        allowed = ", ".join(f"{family}/" for family in DELETABLE)
        raise InvalidField(f"{field} must be below one of {allowed} to be deleted, got {name!r}", field=field)
    return name


def is_below(name: str, prefix: str) -> bool:
    """Whether `name` begins with the whole segments of `prefix`."""
    return prefix == "" or name == prefix or name.startswith(f"{prefix}/")


def epoch_name(epoch: int) -> str:
    """The name whose creation owns the epoch."""
    return f"{EPOCHS}/{epoch:020d}"


def epoch_of(name: str) -> int:
    """The epoch that a name owns; 0 for names of other families."""
    found = _EPOCH.match(name)
    return int(found[1]) if found else 0


def publishes(name: str) -> bool:
    """Whether the name decides a checkpoint: then everything below what it publishes must be durable.

    What a restore decides depends on no blob any more.
    """
    family, _, rest = name.partition("/")
    return family == DECISIONS and rest != "" and "/" not in rest and not rest.startswith(RESTORE)
