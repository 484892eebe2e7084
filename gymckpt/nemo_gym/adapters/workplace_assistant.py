"""`workplace_assistant`: the pandas tables of six containers of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymckpt import tables
from gymckpt.nemo_gym.adapters.base import Adapter, declare

if TYPE_CHECKING:
    import pandas as pd

TOOLKITS = ("email", "calendar", "analytics", "project_management", "customer_relationship_manager")
TABLES = (
    "company_directory._emails",
    "email._emails",
    "calendar._calendar_events",
    "analytics._analytics_data",
    "analytics._plots_data",
    "project_management._project_tasks",
    "customer_relationship_manager._crm_data",
)
"""`container.attribute` of every table; the containers have no other attributes."""


@declare("resources_servers.workplace_assistant.app:WorkbenchResourcesServer")
class WorkplaceAssistant(Adapter["dict[str, pd.DataFrame]", "dict[str, Any]"]):
    """The major version of pandas is part of the state: tools answer differently under another one, so it is refused, or the episode restarts."""

    schema = "nemo_gym/workplace_assistant/1"

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._cache = tables.PartsCache()

    def holds(self, session: str) -> bool:
        return session in self.server.session_id_to_tool_env

    def freeze(self, session: str) -> dict[str, pd.DataFrame]:
        containers = self.server.session_id_to_tool_env[session]["containers"]
        unknown = [
            name for container, tools in containers.items() for name in _names(container, tools) if name not in TABLES
        ]
        if unknown:
            raise ValueError(f"the tools keep {unknown[:4]}, which this adapter does not know")
        return tables.freeze({name: getattr(containers[name.split(".")[0]], name.split(".")[1]) for name in TABLES})

    def encode(self, frozen: dict[str, pd.DataFrame]) -> Mapping[str, bytes]:
        return tables.encode(frozen.items(), self._cache)

    def load(self, parts: Mapping[str, bytes]) -> dict[str, Any]:
        from resources_servers.workplace_assistant.utils import get_tools

        frames = tables.decode(parts, TABLES)
        environment: dict[str, Any] = get_tools(list(TOOLKITS))
        for name, frame in frames.items():
            container, _, attribute = name.partition(".")
            setattr(environment["containers"][container], attribute, frame)
        return environment

    def install(self, session: str, loaded: dict[str, Any]) -> None:
        self.server.session_id_to_tool_env[session] = loaded

    def discard(self, session: str) -> None:
        self.server.session_id_to_tool_env.pop(session, None)


def _names(container: str, tools: object) -> list[str]:
    return [f"{container}.{attribute}" for attribute in vars(tools)]
