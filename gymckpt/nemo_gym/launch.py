"""Running one server without NeMo Gym's command line, and directories that make it run through that command line."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from nemo_gym import PARENT_DIR
from omegaconf import OmegaConf

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.embed import make_participant

KINDS = ("resources_servers", "responses_api_models")
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


def wrap(root: Path, component: str) -> Path:
    """Makes `<root>/<kind>/<component>_checkpointed`, which `gym env start --search-dir <root>` finds; returns it.

    It holds an app that keeps the shipped class running in the shipped directory, and the shipped configurations with the names of their instances as they
    were. Made again, it is replaced file by file. Raises InvalidField when NeMo Gym ships no such resources or model server, or one without requirements.txt.
    """
    shipped = next((path for kind in KINDS if ((path := Path(PARENT_DIR, kind, component)) / "app.py").is_file()), None)
    if shipped is None:
        raise InvalidField(f"NeMo Gym ships no {component!r} in {' or '.join(KINDS)}", field="component")
    kind, source = shipped.parent.name, (shipped / "app.py").read_text(encoding="utf-8")
    launched = _LAUNCH.findall(source)
    if not launched:
        raise InvalidField(f"{shipped}/app.py runs no class's run_webserver()", field="component")
    if not (shipped / "requirements.txt").is_file():
        raise InvalidField(f"{shipped} has no requirements.txt: write an app.py of your own for it", field="component")
    made = root / kind / f"{component}{SUFFIX}"
    (made / "configs").mkdir(parents=True, exist_ok=True)
    text = APP.format(component=component, module=f"{kind}.{component}.app", name=launched[-1])
    (made / "app.py").write_text(text, encoding="utf-8")
    requirements = (shipped / "requirements.txt").read_text(encoding="utf-8")
    (made / "requirements.txt").write_text(f"{requirements.rstrip()}\n{_requirement()}\n", encoding="utf-8")
    for configuration in sorted((shipped / "configs").glob("*.yaml")):
        name = f"{made.name}.yaml" if configuration.stem == component else configuration.name
        value = OmegaConf.to_container(OmegaConf.load(configuration), resolve=False)
        OmegaConf.save(_renamed(value, kind, component, made.name), made / "configs" / name)
    return made


def _requirement() -> str:
    """This gymckpt, for the environment that NeMo Gym makes of a server: from where it was installed here."""
    told = importlib.metadata.distribution("gymckpt").read_text("direct_url.json")
    return f"gymckpt[pandas] @ {json.loads(told)['url']}" if told else "gymckpt[pandas]"


def _renamed(configuration: Any, kind: str, component: str, name: str) -> Any:
    """The configuration with `<kind>.<component>` called `name` in every instance."""
    for instance in configuration.values() if isinstance(configuration, dict) else ():
        servers = instance.get(kind) if isinstance(instance, dict) else None
        if isinstance(servers, dict) and component in servers:
            instance[kind] = {name if key == component else key: value for key, value in servers.items()}
    return configuration
