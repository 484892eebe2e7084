"""A deterministic OpenAI-compatible server: `python upstream.py --port N --latency SECONDS`.

The first user message is the whole script, as JSON: `{"steps": [[{"name", "arguments"}, ...], ...], "final": "text"}`. How many steps the conversation holds
tells the next one, so nothing is kept between calls and any call may come twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import uvicorn
from blake3 import blake3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def text_of(content: Any) -> str:
    """The text of a message's content, which is text or a list of texts."""
    return content if isinstance(content, str) else "".join(piece["text"] for piece in content)


def steps_taken(items: list[dict[str, Any]]) -> int:
    """A step is a run of function calls."""
    kinds = [item.get("type") for item in items]
    return sum(kind == "function_call" and before != kind for before, kind in zip([None, *kinds], kinds, strict=False))


def output_of(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the policy says next."""
    asked = next(text_of(item["content"]) for item in items if item.get("role") == "user")
    script, taken = json.loads(asked), steps_taken(items)

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


def response_to(body: dict[str, Any]) -> dict[str, Any]:
    """A whole Responses object."""
    output = output_of(body["input"])
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


def application(latency: float) -> Starlette:
    async def respond(request: Request) -> JSONResponse:
        body = await request.json()
        await asyncio.sleep(latency)  # the time that a model takes
        return JSONResponse(response_to(body))

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/v1/responses", respond, methods=["POST"]), Route("/health", health)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0)
    given = parser.parse_args()
    uvicorn.run(application(given.latency), host="127.0.0.1", port=given.port, log_level="warning")
