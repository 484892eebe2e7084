"""What a supervisor's file may say, and how it is told that it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymckpt.core.ids import ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.errors import InvalidField
from gymckpt.supervisor import Program, read_config

WHOLE = """
coordinator = "127.0.0.1:7070"
checkpoint_every = 30
keep = 3
restart_after = 0.5

[server.coordinator]
command = ["gymckpt", "serve", "--store", "./checkpoints"]

[server.policy_model]
participant = "model/policy_model"
command = ["python", "-m", "servers.model"]
environment = { GYMCKPT_COORDINATOR = "127.0.0.1:7070" }
directory = "model"
log = "model.log"
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "run.toml"
    file.write_text(text)
    return file


def test_a_file_is_read_relative_to_itself_and_in_its_order(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, WHOLE))
    assert (config.coordinator, config.checkpoint_every, config.restart_after) == ("127.0.0.1:7070", 30.0, 0.5)
    assert (config.stop_within, config.keep) == (10.0, 3)
    assert config.programs == (
        Program("coordinator", ("gymckpt", "serve", "--store", "./checkpoints"), directory=tmp_path),
        Program(
            "policy_model",
            ("python", "-m", "servers.model"),
            ParticipantId(Kind.MODEL, "policy_model"),
            tmp_path / "model",
            {"GYMCKPT_COORDINATOR": "127.0.0.1:7070"},
            tmp_path / "model.log",
        ),
    )


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        (('coordinator = "127.0.0.1:7070"', ""), "coordinator", "must be a text, got None"),
        (("checkpoint_every = 30", 'checkpoint_every = "30s"'), "checkpoint_every", "got '30s'"),
        (("checkpoint_every = 30", "checkpoint_every = -1"), "checkpoint_every", "0 to 86400, got -1"),
        (("checkpoint_every = 30", "checkpoint_every = true"), "checkpoint_every", "got True"),
        (("keep = 3", "keep = -1"), "keep", "must be a number, 0 for all, got -1"),
        (("keep = 3", "keep = 1.5"), "keep", "got 1.5"),
        (("keep = 3", "keep = true"), "keep", "got True"),
        (("restart_after", "restart_afer"), "restart_afer", "is unknown"),
        (('log = "model.log"', 'logs = "x"'), "server.policy_model.logs", "is unknown"),
        (
            ('["python", "-m", "servers.model"]', '"python -m servers.model"'),
            "server.policy_model.command",
            "list of words",
        ),
        (('["python", "-m", "servers.model"]', "[]"), "server.policy_model.command", "got \\[\\]"),
        (("model/policy_model", "policy_model"), "server.policy_model.participant", "kind/name"),
        (('GYMCKPT_COORDINATOR = "127.0.0.1:7070"', "PORT = 7"), "server.policy_model.environment", "table of texts"),
        (("[server.coordinator]", "[servers.coordinator]"), "servers", "is unknown"),
        (("[server.coordinator]", "[server.coordinator"), "", "is no TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: tuple[str, str], field: str, problem: str) -> None:
    """X20."""
    assert change[0] in WHOLE
    with pytest.raises(InvalidField, match=problem) as refused:
        read_config(written(tmp_path, WHOLE.replace(*change)))
    assert refused.value.field == field
    assert str(tmp_path / "run.toml") in refused.value.message
    assert ("[server.policy_model]: " in refused.value.message) == ("policy_model" in field)


def test_a_file_without_servers_is_refused(tmp_path: Path) -> None:
    """X20."""
    with pytest.raises(InvalidField, match="one table per server"):
        read_config(written(tmp_path, 'coordinator = "127.0.0.1:7070"\n'))
