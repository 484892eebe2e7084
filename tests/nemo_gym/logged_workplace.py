"""The shipped workplace_assistant, which also tells what it has done, in a line each.

A tool that it has run goes to the file that EXECUTIONS names, the tables with which a session comes to its verification to the one that TABLES names, if any.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from fastapi import Request
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.workplace_assistant.app import (
    WorkbenchRequest,
    WorkbenchResourcesServer,
    WorkbenchResponse,
    WorkbenchVerifyRequest,
    WorkbenchVerifyResponse,
)

from gymckpt.nemo_gym import declare
from gymckpt.nemo_gym.adapters.workplace_assistant import WorkplaceAssistant
from tests.nemo_gym.executions import append

if TYPE_CHECKING:
    import pandas as pd


class LoggedWorkplace(WorkbenchResourcesServer):  # type: ignore[misc]
    """Its state is what its base class keeps."""

    async def route_to_python_function(self, path: str, body: WorkbenchRequest, request: Request) -> WorkbenchResponse:
        answer = await super().route_to_python_function(path, body, request)
        line = {"session": request.session[SESSION_ID_KEY], "tool": path, "arguments": body.model_dump()}
        append(line)
        return answer

    async def verify(self, request: Request, body: WorkbenchVerifyRequest) -> WorkbenchVerifyResponse:
        session = request.session[SESSION_ID_KEY]
        if "TABLES" in os.environ:
            tools = self.session_id_to_tool_env[session]["containers"]
            append({"session": session, "task": body.id, "tables": digests(tools)}, "TABLES")
        return await super().verify(request, body)


def digests(containers: dict[str, Any]) -> dict[str, str]:
    """Of each attribute of the tools. All are tables."""
    return {f"{name}.{key}": digest(table) for name, tools in containers.items() for key, table in vars(tools).items()}


def digest(table: pd.DataFrame) -> str:
    """Tells apart what tools can: cells with their types, None from NaN, types of columns, and the index."""
    columns = [(name, str(table[name].dtype), table[name].tolist()) for name in table.columns]
    return blake3(repr((columns, type(table.index).__name__, table.index.tolist())).encode()).hexdigest()


declare("tests.nemo_gym.logged_workplace:LoggedWorkplace")(WorkplaceAssistant)
