"""Running one server without NeMo Gym's command line, and directories that make it run through that command line."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym import PARENT_DIR
from omegaconf import OmegaConf

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.embed import make_participant

KINDS = ("resources_servers", "responses_api_models", "responses_api_agents")
SUFFIX = "_checkpointed"

APP = '''"""{component} of NeMo Gym as a participant of gymckpt."""

import sys

from gymckpt.keep import keep

SERVER = "{module}:{name}"

if __name__ == "__main__":
    # NeMo Gym ends the run when a process that it started dies: so this one stays, and starts the server again.
    sys.exit(keep([sys.executable, "-m", "gymckpt.nemo_gym", "run", SERVER]))
else:
    from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint

    from gymckpt.nemo_gym.launch import run

    if is_nemo_gym_fastapi_entrypoint(__file__):  # a worker of a server with num_workers
        app = run(SERVER)
'''

_LAUNCH = re.compile(r"^\s+(\w+)\.run_webserver\(\)", re.MULTILINE)


def run(path: str) -> Any:
    """Runs the server `module:Class` as a participant until it ends; in a worker process of NeMo Gym's, returns its app.

    It finds its configuration as for `python app.py`, and what lies beside its module as under `gym env start`: modules, and files by relative paths.
    Raises InvalidField when there is no such class.
    """
    return make_participant(_server_class(path)).run_webserver()


def _server_class(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            directory = Path(spec.origin).resolve().parent
            if str(directory) not in sys.path:
                sys.path.insert(0, str(directory))
            os.chdir(directory)
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidField(f"no server class {path!r} (module:Class): {error}", field="server") from error


def wrap(root: Path, components: Sequence[str]) -> list[Path]:
    """Makes `<root>/<kind>/<component>_checkpointed` of each, which `gym env start --search-dir <root>` finds; returns them.

    It holds an app that keeps the shipped class running in the shipped directory, and the shipped configurations with the names of their instances as they
    were; in all of them the components are the wrapped ones. Made again, it is replaced file by file. Raises InvalidField, and makes nothing, when NeMo Gym
    ships no such resources, model or agent server, or one that cannot be wrapped.
    """
    shipped = [_shipped(component) for component in components]
    apps = [_app(directory) for directory in shipped]
    names = {(directory.parent.name, directory.name): f"{directory.name}{SUFFIX}" for directory in shipped}
    return [_write(root, directory, app, names) for directory, app in zip(shipped, apps, strict=True)]


def _shipped(component: str) -> Path:
    found = next((path for kind in KINDS if ((path := Path(PARENT_DIR, kind, component)) / "app.py").is_file()), None)
    if found is None:
        raise InvalidField(f"NeMo Gym ships no {component!r} in {', '.join(KINDS)}", field="component")
    if not (found / "requirements.txt").is_file():
        raise InvalidField(f"{found} has no requirements.txt: write an app.py of your own for it", field="component")
    return found


def _app(shipped: Path) -> str:
    launched = _LAUNCH.findall((shipped / "app.py").read_text(encoding="utf-8"))
    if not launched:
        raise InvalidField(f"{shipped}/app.py runs no class's run_webserver()", field="component")
    module = f"{shipped.parent.name}.{shipped.name}.app"
    return APP.format(component=shipped.name, module=module, name=launched[-1])


def _write(root: Path, shipped: Path, app: str, names: Mapping[tuple[str, str], str]) -> Path:
    made = root / shipped.parent.name / names[shipped.parent.name, shipped.name]
    (made / "configs").mkdir(parents=True, exist_ok=True)
    (made / "app.py").write_text(app, encoding="utf-8")
    requirements = (shipped / "requirements.txt").read_text(encoding="utf-8")
    (made / "requirements.txt").write_text(f"{requirements.rstrip()}\n{_requirement()}\n", encoding="utf-8")
    for configuration in sorted((shipped / "configs").glob("*.yaml")):
        name = f"{made.name}.yaml" if configuration.stem == shipped.name else configuration.name
        value = OmegaConf.to_container(OmegaConf.load(configuration), resolve=False)
        OmegaConf.save(_renamed(value, names), made / "configs" / name)
    return made


def _requirement() -> str:
    """This gymckpt, for the environment that NeMo Gym makes of a server: from where it was installed here."""
    told = importlib.metadata.distribution("gymckpt").read_text("direct_url.json")
    return f"gymckpt[pandas] @ {json.loads(told)['url']}" if told else "gymckpt[pandas]"


def _renamed(configuration: Any, names: Mapping[tuple[str, str], str]) -> Any:
    """The configuration with the new name of each component of `names`, which are by kind and name, in every instance."""
    for instance in configuration.values() if isinstance(configuration, dict) else ():
        for kind in KINDS:
            servers = instance.get(kind) if isinstance(instance, dict) else None
            if isinstance(servers, dict):
                instance[kind] = {names.get((kind, key), key): value for key, value in servers.items()}
    return configuration
