"""The README's table of the shipped resources servers says of each one what becomes of it here."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from nemo_gym import PARENT_DIR

import gymckpt.nemo_gym
from gymckpt.core.kinds import Capture
from gymckpt.nemo_gym.adapters import adapter_of, declared
from tests.nemo_gym.verifiers_recorded import NOT_STARTED

SHIPPED = Path(PARENT_DIR, "resources_servers")
CAPTURES = {"exported": Capture.EXPORTED, "stateless": Capture.STATELESS, "restart-only": Capture.RESTART_ONLY}
NO_SERVER = "no server"


def table() -> list[tuple[str, str]]:
    """Every server that the table names, with what it is captured as."""
    readme = Path(gymckpt.nemo_gym.__path__[0], "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## Servers\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [(name, row[1]) for row in rows[2:] for name in re.findall(r"`(\w+)`", row[0])]


TABLE = table()


def launched(component: str) -> set[tuple[str, str]]:
    """Module and class of the server that the shipped `app.py` runs; where it runs none, of those that the files beside it run."""
    return _launched(component, "app.py") or _launched(component, "*.py")


def _launched(component: str, pattern: str) -> set[tuple[str, str]]:
    found = set()
    for file in (SHIPPED / component).glob(pattern):
        source = file.read_text(encoding="utf-8")
        names = re.findall(r"^    (\w+)\.run_webserver\(\)", source, re.MULTILINE)
        assert set(names) <= set(re.findall(r"^class (\w+)\(", source, re.MULTILINE)), file
        found |= {(f"resources_servers.{component}.{file.stem}", name) for name in names}
    return found


def test_the_table_names_every_shipped_server_once() -> None:
    """D01."""
    names = [name for name, _ in TABLE]
    assert sorted(names) == sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())


@pytest.mark.parametrize(("component", "said"), TABLE, ids=[name for name, _ in TABLE])
def test_the_table_says_what_becomes_of_the_class_that_the_shipped_app_runs(component: str, said: str) -> None:
    """D01. The shipped class is told by its name: most of them need more than is installed before they can be imported."""
    servers = launched(component)
    assert bool(servers) is (said != NO_SERVER)
    for module, name in servers:
        alike = type(name, (), {"__module__": module, "__qualname__": name})
        assert adapter_of(alike).capture is CAPTURES[said]


def test_nothing_is_declared_that_is_not_shipped() -> None:
    """D01."""
    shipped = {f"{module}:{name}" for component, _ in TABLE for module, name in launched(component)}
    assert {path for path in declared() if path.startswith("resources_servers.")} <= shipped


@pytest.mark.parametrize(
    "path",
    [path for path, adapter in declared().items() if path.split(".")[1] not in NOT_STARTED],
)
def test_a_declared_class_that_can_be_imported_has_its_adapter(path: str) -> None:
    """D01."""
    module, _, name = path.partition(":")
    try:
        server = getattr(importlib.import_module(module), name)
    except ImportError as missing:
        pytest.skip(f"cannot be imported here: {missing}")
    assert adapter_of(server) is declared()[path]
