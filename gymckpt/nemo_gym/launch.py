"""Running one server without NeMo Gym's command line, and directories that make it run through that command line."""

from __future__ import annotations

import importlib
import importlib.util
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

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint

from gymckpt.nemo_gym import make_participant
from gymckpt.nemo_gym.launch import server_class

Server = make_participant(server_class("{module}:{name}"))

if __name__ == "__main__":
    Server.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = Server.run_webserver()
'''

_LAUNCH = re.compile(r"^\s+(\w+)\.run_webserver\(\)", re.MULTILINE)


def server_class(path: str) -> Any:
    """The class that `module:Class` names; as for `python app.py`, what lies beside the module can be imported by it. Raises InvalidField."""
    module, _, name = path.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None and str(Path(spec.origin).parent) not in sys.path:
            sys.path.insert(0, str(Path(spec.origin).parent))
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidField(f"no server class {path!r} (module:Class): {error}", field="server") from error


def run(path: str) -> None:
    """Runs the server as a participant until it ends. NeMo Gym finds its configuration as for `python app.py`."""
    make_participant(server_class(path)).run_webserver()


def wrap(root: Path, component: str) -> Path:
    """Makes `<root>/<kind>/<component>_checkpointed`, which `gym env start --search-dir <root>` finds; returns it.

    It holds an app that runs the shipped class, and the shipped configurations with the names of their instances as they were. Made again, it is replaced file
    by file. Raises InvalidField when NeMo Gym ships no such resources or model server.
    """
    shipped = next((path for kind in KINDS if ((path := Path(PARENT_DIR, kind, component)) / "app.py").is_file()), None)
    if shipped is None:
        raise InvalidField(f"NeMo Gym ships no {component!r} in {' or '.join(KINDS)}", field="component")
    kind, source = shipped.parent.name, (shipped / "app.py").read_text(encoding="utf-8")
    launched = _LAUNCH.findall(source)
    if not launched:
        raise InvalidField(f"{shipped}/app.py runs no class's run_webserver()", field="component")
    made = root / kind / f"{component}{SUFFIX}"
    (made / "configs").mkdir(parents=True, exist_ok=True)
    text = APP.format(component=component, module=f"{kind}.{component}.app", name=launched[-1])
    (made / "app.py").write_text(text, encoding="utf-8")
    requirements = (shipped / "requirements.txt").read_text(encoding="utf-8")
    (made / "requirements.txt").write_text(f"{requirements.rstrip()}\ngymckpt[pandas]\n", encoding="utf-8")
    for configuration in sorted((shipped / "configs").glob("*.yaml")):
        name = f"{made.name}.yaml" if configuration.stem == component else configuration.name
        value = OmegaConf.to_container(OmegaConf.load(configuration), resolve=False)
        OmegaConf.save(_renamed(value, kind, component, made.name), made / "configs" / name)
    return made


def _renamed(configuration: Any, kind: str, component: str, name: str) -> Any:
    """The configuration with `<kind>.<component>` called `name` in every instance."""
    for instance in configuration.values() if isinstance(configuration, dict) else ():
        servers = instance.get(kind) if isinstance(instance, dict) else None
        if isinstance(servers, dict) and component in servers:
            instance[kind] = {name if key == component else key: value for key, value in servers.items()}
    return configuration
