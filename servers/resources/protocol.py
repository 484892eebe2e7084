"""What NeMo Gym's resources servers have in common on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict

from gymckpt.errors import InvalidField
from gymckpt.participant import Call
from servers.responses_api import complete_params, complete_response


class VerifyRequest(BaseModel):
    """A run's row with the finished response; a server adds the fields of its tasks."""

    model_config = ConfigDict(extra="allow")
    responses_create_params: dict[str, Any]
    response: dict[str, Any]


class CloseRequest(BaseModel):
    """Names a session; the cookie decides which one is meant."""

    model_config = ConfigDict(extra="allow")
    resources_session_id: str | None = None


def session_of(call: Call) -> str:
    """The key of the call's session."""
    if call.session is None:
        raise InvalidField("the call names no session; send the session cookie or x-gymckpt-session", field="session")
    return call.session


def not_seeded() -> HTTPException:
    """What a call for a session without state is answered."""
    return HTTPException(400, "Session not initialized. Please call seed_session first.")


def task_data(seed_body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task's own fields in a seed body: a flat row has them beside the others, a typed one under `task_data`."""
    data = seed_body.get("task_data", seed_body)
    if not isinstance(data, dict):
        raise InvalidField(f"task_data must be an object, got {type(data).__name__}", field="task_data")
    return data


def seed_answer(seed_body: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing for a flat row; a typed body gets its session id back, with no tools and no sandbox beyond the server."""
    if "resources_session_id" not in seed_body:
        return {}
    session = seed_body["resources_session_id"]
    return {"resources_session_id": session, "resources_tools": None, "sandbox_access": None}


def verify_answer(request: VerifyRequest, reward: float) -> dict[str, Any]:
    """The graded rollout. The fields of the task are not repeated."""
    return {
        "responses_create_params": complete_params(request.responses_create_params),
        "response": complete_response(request.response),
        "reward": reward,
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }
