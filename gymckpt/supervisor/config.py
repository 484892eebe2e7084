"""What a supervisor runs, as a TOML file says it."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gymckpt.core.ids import ParticipantId
from gymckpt.errors import InvalidField
from gymckpt.rpc.channel import check_address

LONGEST_SECONDS = 86_400.0
CONFIG = "config"  # the key of the details of an error about what the file says


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
    young, up to 30; `stop_within` is how long a server may take to end before it is killed. `keep` is how many checkpoints stay once another one is published,
    0 keeps all."""

    coordinator: str
    programs: tuple[Program, ...]
    checkpoint_every: float = 0.0
    restart_after: float = 1.0
    stop_within: float = 10.0
    keep: int = 0


def read_config(file: Path) -> Config:
    """Relative directories and logs are relative to the file. Raises InvalidField naming file, table and key, FileNotFoundError."""
    with _naming(file):
        try:
            given = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidField(f"is no TOML: {error}") from error
        _only(given, {"coordinator", "checkpoint_every", "keep", "restart_after", "stop_within", "server"})
        servers = given.get("server")
        if not isinstance(servers, dict) or not servers:
            raise InvalidField("server must be one table per server, e.g. [server.policy_model]", field="server")
        config = Config(
            check_address(_text(given, "coordinator"), "coordinator"),
            (),
            _seconds(given, "checkpoint_every", 0.0),
            _seconds(given, "restart_after", 1.0),
            _seconds(given, "stop_within", 10.0),
            _count(given, "keep"),
        )
    programs = []
    for name, entry in servers.items():
        with _naming(file, f"server.{name}"):
            programs.append(_program(name, entry, file.parent))
    return replace(config, programs=tuple(programs))


@contextlib.contextmanager
def _naming(file: Path, table: str = "") -> Iterator[None]:
    """Around reading a table; without a name, the keys above all tables. Raises the same error, naming both."""
    try:
        yield
    except InvalidField as wrong:
        place = f"{file}, [{table}]" if table else str(file)
        field = ".".join(part for part in (table, wrong.field) if part)
        raise InvalidField(f"{place}: {wrong.message}", field=field, details={CONFIG: str(file)}) from wrong


def _program(name: str, entry: Any, base: Path) -> Program:
    if not isinstance(entry, dict):
        raise InvalidField(f"must be a table, got {entry!r}")
    _only(entry, {"command", "participant", "directory", "environment", "log"})
    command = entry.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise InvalidField(f"command must be a list of words, got {command!r}", field="command")
    environment = entry.get("environment", {})
    if not isinstance(environment, dict) or not all(isinstance(value, str) for value in environment.values()):
        raise InvalidField(f"environment must be a table of texts, got {environment!r}", field="environment")
    participant = _text(entry, "participant", required=False)
    log = _text(entry, "log", required=False)
    return Program(
        name,
        tuple(command),
        ParticipantId.parse(participant) if participant else None,
        (base / _text(entry, "directory", required=False)).resolve(),
        environment,
        (base / log).resolve() if log else None,
    )


def _only(given: Mapping[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise InvalidField(f"{key} is unknown; known are {', '.join(sorted(known))}", field=key)


def _text(given: Mapping[str, Any], key: str, *, required: bool = True) -> str:
    value = given.get(key, "")
    if not isinstance(value, str) or (required and not value):
        raise InvalidField(f"{key} must be a text, got {given.get(key)!r}", field=key)
    return value


def _seconds(given: Mapping[str, Any], key: str, default: float) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_SECONDS:
        raise InvalidField(f"{key} must be seconds, 0 to {LONGEST_SECONDS:g}, got {value!r}", field=key)
    return float(value)


def _count(given: Mapping[str, Any], key: str) -> int:
    value = given.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidField(f"{key} must be a number, 0 for all, got {value!r}", field=key)
    return value
