"""The shipped workplace_assistant, which also writes a line for each tool that it has run, to the file that EXECUTIONS names."""

from __future__ import annotations

from fastapi import Request
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.workplace_assistant.app import (
    WorkbenchRequest,
    WorkbenchResourcesServer,
    WorkbenchResponse,
)

from gymckpt.nemo_gym import declare
from gymckpt.nemo_gym.adapters.workplace_assistant import WorkplaceAssistant
from tests.nemo_gym.executions import append


class LoggedWorkplace(WorkbenchResourcesServer):  # type: ignore[misc]
    """Its state is what its base class keeps."""

    async def route_to_python_function(self, path: str, body: WorkbenchRequest, request: Request) -> WorkbenchResponse:
        answer = await super().route_to_python_function(path, body, request)
        line = {"session": request.session[SESSION_ID_KEY], "tool": path, "arguments": body.model_dump()}
        append(line)
        return answer


declare("tests.nemo_gym.logged_workplace:LoggedWorkplace")(WorkplaceAssistant)
