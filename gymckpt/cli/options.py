"""What stands on a command line, as values of the protocol. Every refusal names the value and its form."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from gymckpt.core.arguments import MAX_CONTROLLER_STATE
from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.results import Acknowledgement
from gymckpt.errors import InvalidField
from gymckpt.rpc.channel import check_address

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?\Z")
_RECEIPT = re.compile(r"[0-9a-f]{64}\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def address(_ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    """Callback: `host:port` or `unix:<path>`."""
    try:
        return None if given is None else check_address(given, "the address")
    except InvalidField as wrong:
        raise click.BadParameter(wrong.message, param=param) from wrong


def seconds(_ctx: click.Context, param: click.Parameter, given: str) -> float:
    """Callback: `90`, `90s`, `1.5m`, `2h`, `250ms`, as seconds."""
    found = _DURATION.match(given)
    if found is None:
        raise click.BadParameter(
            f"a duration is a number with ms, s, m or h, e.g. 90s or 1.5m, got {given!r}", param=param
        )
    return float(found[1]) * _UNITS[found[2] or "s"]


def episodes(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[Episode, ...]:
    """Callback: episodes in their text form, comma-separated, or `@FILE` with one per line (`@-` is standard input).

    What was given must name one: no episodes at all mean every episode, which an empty list hardly does.
    """
    words = _words(given, param)
    if given and not words:
        raise click.BadParameter(
            f"{' '.join(map(repr, given))} names no episode"
            + ("; leave the option out to mean all of them" if isinstance(param, click.Option) else ""),
            param=param,
        )
    return _each(Episode.parse, words, param)


def participants(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[ParticipantId, ...]:
    """Callback: `kind/name`, comma-separated."""
    return _each(ParticipantId.parse, _words(given, param), param)


def labels(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Callback: `key=value` each; a key stands once."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"a label is written key=value, got {text!r}", param=param)
        if key in found:
            raise click.BadParameter(f"label {key!r} is given twice: {found[key]!r} and {value!r}", param=param)
        found[key] = value
    return found


def choice(name: str, kind: type[E], default: E, text: str) -> Decorator:
    """An option whose words are the members of an enum, `AFTER_SNAPSHOT` as `after-snapshot`, and whose value is the member."""

    def member(_ctx: click.Context, _param: click.Parameter, word: str) -> E:
        return kind[word.upper().replace("-", "_")]

    words = {value: value.name.lower().replace("_", "-") for value in kind}
    return click.option(
        name,
        type=click.Choice([*words.values()]),
        default=words[default],
        show_default=True,
        callback=member,
        help=text,
    )


def receipts(_ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[Acknowledgement, ...]:
    """Callback: `EPISODE=RECEIPT`, the receipt in 64 hexadecimal digits, comma-separated or `@FILE` with one per line. What was given must name one."""
    words = _words(given, param)
    if given and not words:
        raise click.BadParameter(f"{' '.join(map(repr, given))} names no result", param=param)
    return _each(_receipt, words, param)


def _receipt(word: str) -> Acknowledgement:
    episode, _, receipt = word.partition("=")
    if _RECEIPT.match(receipt) is None:
        raise InvalidField(f"a result is named EPISODE=RECEIPT, the receipt in 64 hexadecimal digits, got {word!r}")
    return Acknowledgement(Episode.parse(episode), bytes.fromhex(receipt))


def duration(name: str, default: str, text: str) -> Decorator:
    """An option that takes a duration."""
    return click.option(name, metavar="DURATION", default=default, show_default=True, callback=seconds, help=text)


def content(_ctx: click.Context, _param: click.Parameter, given: BinaryIO | None) -> bytes:
    """Callback: what the file holds, read no further than one byte beyond what is allowed; nothing without a file."""
    return given.read(MAX_CONTROLLER_STATE + 1) if given is not None else b""


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _words(given: Iterable[str], param: click.Parameter) -> list[str]:
    words: list[str] = []
    for text in given:
        words += _lines(text[1:], param) if text.startswith("@") else text.split(",")
    return [word.strip() for word in words if word.strip()]


def _lines(name: str, param: click.Parameter) -> list[str]:
    try:
        return (sys.stdin.read() if name == "-" else Path(name).read_text()).splitlines()
    except (OSError, UnicodeDecodeError) as unreadable:
        raise click.BadParameter(f"cannot read {name!r}: {unreadable}", param=param) from unreadable


def _each(parse: Callable[[str], T], words: Iterable[str], param: click.Parameter) -> tuple[T, ...]:
    try:
        return tuple(parse(word) for word in words)
    except InvalidField as wrong:
        raise click.BadParameter(wrong.message, param=param) from wrong
