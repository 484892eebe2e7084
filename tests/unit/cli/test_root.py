"""The tree of commands: all of it is documented, and nothing needs a coordinator to be explained."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from gymckpt.cli.root import gymckpt, run

README = Path(__file__).resolve().parents[3] / "gymckpt/cli/README.md"


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command under its full name."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(leaves(gymckpt, "gymckpt"))


def test_these_are_the_commands() -> None:
    assert sorted(COMMANDS) == [
        "gymckpt checkpoint abort",
        "gymckpt checkpoint create",
        "gymckpt checkpoint delete",
        "gymckpt checkpoint list",
        "gymckpt checkpoint restore",
        "gymckpt checkpoint resume",
        "gymckpt checkpoint show",
        "gymckpt explain",
        "gymckpt participants",
        "gymckpt results acknowledge",
        "gymckpt results list",
        "gymckpt retire",
        "gymckpt serve",
        "gymckpt store verify",
        "gymckpt supervise",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example_help_for_each_option_and_a_row_in_the_readme(name: str) -> None:
    command = COMMANDS[name]
    assert command.help is not None
    assert f"Example: {name}" in command.help
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.opts for option in options if not option.help] == []
    assert {"--json", "--coordinator"} <= {opt for option in options for opt in option.opts}
    assert f"| `{name}` |" in README.read_text()


@pytest.mark.parametrize("group", [(), ("checkpoint",), ("results",), ("store",)])
def test_the_help_of_a_group_tells_the_options_that_every_command_takes(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*group, "--help"]) == 0
    said = capsys.readouterr().out
    assert ("--json" in said, "--coordinator HOST:PORT" in said) == (True, True)


def test_help_says_what_is_meant_when_nothing_is_given() -> None:
    for name in ("gymckpt checkpoint show", "gymckpt checkpoint restore"):
        assert "`latest`, the newest published" in str(COMMANDS[name].help)
    (episodes,) = (option for option in COMMANDS["gymckpt checkpoint create"].params if option.name == "episodes")
    assert isinstance(episodes, click.Option)
    assert str(episodes.help).startswith(
        "Episodes to keep (default: all that can be captured); one that cannot be continued is named as lost."
    )


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gymckpt {version('gymckpt')}\n"


def test_help_and_usage_errors_exit_as_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert run(["checkpoint", "create", "--help"]) == 0
    assert run(["chekpoint"]) == 2
    assert "No such command 'chekpoint'" in capsys.readouterr().err
