"""What a supervisor runs, as a TOML file says it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymckpt.core.ids import ParticipantId
from gymckpt.errors import InvalidField
from gymckpt.rpc.channel import check_address

LONGEST_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Program:
    """A server of the run. `participant` is None for one that is no member of checkpoints, the coordinator among them; without `log` it speaks where the
    supervisor does."""

    name: str
    command: tuple[str, ...]
    participant: ParticipantId | None = None
    directory: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Times are in seconds. `checkpoint_every` 0 takes none; `restart_after` is the wait before a dead server is started again, doubled each time that it died
    young, up to 30; `stop_within` is how long a server may take to end before it is killed."""

    coordinator: str
    programs: tuple[Program, ...]
    checkpoint_every: float = 0.0
    restart_after: float = 1.0
    stop_within: float = 10.0


def read_config(file: Path) -> Config:
    """Relative directories and logs are relative to the file. Raises InvalidField naming the key, FileNotFoundError."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidField(f"{file} is no TOML: {error}", field="config") from error
    known = {"coordinator", "checkpoint_every", "restart_after", "stop_within", "server"}
    _only(given, known, "")
    servers = given.get("server")
    if not isinstance(servers, dict) or not servers:
        raise InvalidField("server must be one table per server, e.g. [server.policy_model]", field="server")
    return Config(
        check_address(_text(given, "coordinator", ""), "coordinator"),
        tuple(_program(name, entry, file.parent) for name, entry in servers.items()),
        _seconds(given, "checkpoint_every", 0.0),
        _seconds(given, "restart_after", 1.0),
        _seconds(given, "stop_within", 10.0),
    )


def _program(name: str, entry: Any, base: Path) -> Program:
    place = f"server.{name}"
    if not isinstance(entry, dict):
        raise InvalidField(f"{place} must be a table, got {entry!r}", field=place)
    _only(entry, {"command", "participant", "directory", "environment", "log"}, place)
    command = entry.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise InvalidField(f"{place}.command must be a list of words, got {command!r}", field=f"{place}.command")
    environment = entry.get("environment", {})
    if not isinstance(environment, dict) or not all(isinstance(value, str) for value in environment.values()):
        field_name = f"{place}.environment"
        raise InvalidField(f"{field_name} must be a table of texts, got {environment!r}", field=field_name)
    participant = _text(entry, "participant", place, required=False)
    log = _text(entry, "log", place, required=False)
    return Program(
        name,
        tuple(command),
        ParticipantId.parse(participant) if participant else None,
        (base / _text(entry, "directory", place, required=False)).resolve(),
        environment,
        (base / log).resolve() if log else None,
    )


def _only(given: Mapping[str, Any], known: set[str], place: str) -> None:
    for key in given:
        if key not in known:
            name = f"{place}.{key}" if place else key
            raise InvalidField(f"{name} is unknown; known are {', '.join(sorted(known))}", field=name)


def _text(given: Mapping[str, Any], key: str, place: str, *, required: bool = True) -> str:
    value = given.get(key, "")
    name = f"{place}.{key}" if place else key
    if not isinstance(value, str) or (required and not value):
        raise InvalidField(f"{name} must be a text, got {given.get(key)!r}", field=name)
    return value


def _seconds(given: Mapping[str, Any], key: str, default: float) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        raise InvalidField(f"{key} must be seconds, 0 to {LONGEST_SECONDS:g}, got {value!r}", field=key)
    return float(value)
