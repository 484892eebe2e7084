"""Identifiers: each validates itself, so that a value of the type is a valid value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gymckpt.core.kinds import Kind
from gymckpt.errors import InvalidField

MAX_ID = 128
MAX_ATTEMPT = 1_000_000
MAX_ROUND_ID = 136  # an id and the longest prefix of rounds that are not checkpoints, `restore-`
MAX_BLOB = 64 * 2**30

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_ATTEMPT_SUFFIX = re.compile(r"-a([1-9][0-9]*)\Z")
_BOOT_ID = re.compile(r"[0-9a-f]{32}\Z")
_SHOWN = 160


def check_id(value: str, field: str, *, longest: int = MAX_ID) -> str:
    """Returns `value`; raises InvalidField unless it is 1 to `longest` characters of `[A-Za-z0-9][A-Za-z0-9._-]*`."""
    if not isinstance(value, str):
        raise InvalidField(f"{field} must be text, got {type(value).__name__}", field=field)
    if value == "":
        raise InvalidField(f"{field} is required", field=field)
    if len(value) > longest:
        raise InvalidField(
            f"{field} has {len(value)} characters, at most {longest} are allowed: {value[:_SHOWN]!r}", field=field
        )
    if _ID.match(value) is None:
        raise InvalidField(f"{field} must match [A-Za-z0-9][A-Za-z0-9._-]*, got {value!r}", field=field)
    return value


def check_boot_id(value: str, field: str = "boot_id") -> str:
    """Returns `value`; raises InvalidField unless it is 32 lower-case hexadecimal digits."""
    if _BOOT_ID.match(value) is None:
        raise InvalidField(f"{field} must be 32 lower-case hexadecimal digits, got {value[:_SHOWN]!r}", field=field)
    return value


@dataclass(frozen=True, order=True, slots=True)
class Episode:
    """One try of one rollout. Text form: the rollout id for attempt 0, `id-aN` after; `parse(str(e)) == e` always."""

    rollout_id: str
    attempt: int = 0

    def __post_init__(self) -> None:
        check_id(self.rollout_id, "rollout_id")
        if _ATTEMPT_SUFFIX.search(self.rollout_id):
            raise InvalidField(
                f"rollout_id must not end like an attempt (-aN), got {self.rollout_id!r}", field="rollout_id"
            )
        if not 0 <= self.attempt <= MAX_ATTEMPT:
            raise InvalidField(f"attempt must be 0 to {MAX_ATTEMPT}, got {self.attempt}", field="attempt")

    def __str__(self) -> str:
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id

    @classmethod
    def parse(cls, text: str) -> Episode:
        """The inverse of str(). Raises InvalidField."""
        found = _ATTEMPT_SUFFIX.search(text)
        if found is None or len(found[1]) > len(str(MAX_ATTEMPT)):
            return cls(text)
        return cls(text[: found.start()], int(found[1]))


@dataclass(frozen=True, order=True, slots=True)
class ParticipantId:
    """Names a participant; text form `kind/name`."""

    kind: Kind
    name: str

    def __post_init__(self) -> None:
        check_id(self.name, "name")

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> ParticipantId:
        """The inverse of str(). Raises InvalidField."""
        kind, slash, name = text.partition("/")
        if not slash or kind.upper() not in Kind.__members__:
            kinds = ", ".join(str(k) for k in Kind)
            raise InvalidField(
                f"a participant is named kind/name with kind one of {kinds}, got {text[:_SHOWN]!r}", field="participant"
            )
        return cls(Kind[kind.upper()], name)


@dataclass(frozen=True, slots=True)
class Fence:
    """Authority of a coordinator over one round."""

    epoch: int
    sequence: int
    checkpoint_id: str

    def __post_init__(self) -> None:
        for field, value in (("fence.epoch", self.epoch), ("fence.sequence", self.sequence)):
            if not 1 <= value < 2**63:
                raise InvalidField(f"{field} must be from 1, got {value}", field=field)
        check_id(self.checkpoint_id, "fence.checkpoint_id", longest=MAX_ROUND_ID)

    def same_round(self, other: Fence | None) -> bool:
        """Whether both are about one round; a successor ends the rounds of the coordinator before it under its own epoch."""
        return other is not None and self.checkpoint_id == other.checkpoint_id and self.sequence == other.sequence


@dataclass(frozen=True, order=True, slots=True)
class Digest:
    """Name of a blob: BLAKE3 of the content and its size in bytes; text form `<64 hexadecimal digits>:<size>`."""

    blake3: bytes
    size: int

    def __post_init__(self) -> None:
        if len(self.blake3) != 32:
            raise InvalidField(f"blake3 must have 32 bytes, got {len(self.blake3)}", field="blake3")
        if not 0 <= self.size <= MAX_BLOB:
            raise InvalidField(f"size must be 0 to {MAX_BLOB}, got {self.size}", field="size")

    def __str__(self) -> str:
        return f"{self.blake3.hex()}:{self.size}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The inverse of str(). Raises InvalidField."""
        name, colon, size = text.partition(":")
        if not colon or re.fullmatch(r"[0-9a-f]{64}", name) is None or re.fullmatch(r"[0-9]{1,12}", size) is None:
            raise InvalidField(
                f"a digest is written <64 hexadecimal digits>:<size>, got {text[:_SHOWN]!r}", field="digest"
            )
        return cls(bytes.fromhex(name), int(size))
