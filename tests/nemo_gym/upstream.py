"""A deterministic OpenAI-compatible server: `python upstream.py --port N --latency SECONDS --tasks FILE.jsonl`.

The first user message is the whole script, as JSON: `{"steps": [[{"name", "arguments"}, ...], ...], "final": "text"}`; or it is that of a row of the tasks,
whose ground truth is made one call by one. How many steps the conversation holds tells the next one, so nothing is kept between calls and any call may come
twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from blake3 import blake3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

NO_SCRIPTS: Mapping[str, Any] = {}


def text_of(content: Any) -> str:
    """The text of a message's content, which is text or a list of texts."""
    return content if isinstance(content, str) else "".join(piece["text"] for piece in content)


def steps_taken(items: list[dict[str, Any]]) -> int:
    """A step is a run of function calls."""
    kinds = [item.get("type") for item in items]
    return sum(kind == "function_call" and before != kind for before, kind in zip([None, *kinds], kinds, strict=False))


def asked_in(items: list[dict[str, Any]]) -> str:
    return next(text_of(item["content"]) for item in items if item.get("role") == "user")


def scripts_of(tasks: Path) -> dict[str, Any]:
    """A script for each row, by what its user asks."""
    rows = [json.loads(line) for line in tasks.read_text().splitlines()]
    return {
        asked_in(row["responses_create_params"]["input"]): {
            "steps": [[call] for call in row["ground_truth"]],
            "final": "Done.",
        }
        for row in rows
    }


def output_of(items: list[dict[str, Any]], scripts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the policy says next."""
    asked = asked_in(items)
    script, taken = scripts.get(asked) or json.loads(asked), steps_taken(items)

    def name(kind: str, place: int = 0) -> str:
        return f"{kind}_{blake3(f'{asked} {taken} {place}'.encode()).hexdigest()[:24]}"

    if taken < len(script["steps"]):
        return [
            {
                "type": "function_call",
                "id": name("fc", place),
                "call_id": name("call", place),
                "status": "completed",
                **call,
            }
            for place, call in enumerate(script["steps"][taken])
        ]
    content = {"type": "output_text", "text": script["final"], "annotations": []}
    return [{"type": "message", "id": name("msg"), "role": "assistant", "status": "completed", "content": [content]}]


def response_to(body: dict[str, Any], scripts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A whole Responses object."""
    output = output_of(body["input"], scripts or {})
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{output[0]['id']}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": body.get("model"),
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details},
    }


def application(latency: float, scripts: Mapping[str, Any]) -> Starlette:
    async def respond(request: Request) -> JSONResponse:
        body = await request.json()
        await asyncio.sleep(latency)  # the time that a model takes
        return JSONResponse(response_to(body, scripts))

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/v1/responses", respond, methods=["POST"]), Route("/health", health)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--tasks", type=Path)
    given = parser.parse_args()
    known = scripts_of(given.tasks) if given.tasks else {}
    uvicorn.run(application(given.latency, known), host="127.0.0.1", port=given.port, log_level="warning")
