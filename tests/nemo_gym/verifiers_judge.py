"""A deterministic judge: `python verifiers_judge.py --port N --answers FILE`.

FILE is a list of `{"asked": [text, ...], "answer": text}`. A request gets the first answer all of whose texts it holds, and 404 when there is none.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.nemo_gym.upstream import response_to, text_of


def asked(body: dict[str, Any]) -> str:
    """Everything that the request asks the judge to read."""
    told = [text_of(item["content"]) for item in body["input"]]
    return "\n".join([*told, *map(str, (body.get("metadata") or {}).values())])


def application(answers: list[dict[str, Any]]) -> Starlette:
    async def respond(request: Request) -> JSONResponse:
        body = await request.json()
        question = asked(body)
        answer = next((known["answer"] for known in answers if all(text in question for text in known["asked"])), None)
        if answer is None:
            return JSONResponse({"error": {"message": f"nothing was recorded for {question[-400:]!r}"}}, 404)
        script = json.dumps({"steps": [], "final": answer})
        return JSONResponse(response_to({**body, "input": [{"role": "user", "content": script}]}))

    async def health(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/v1/responses", respond, methods=["POST"]), Route("/health", health)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    given = parser.parse_args()
    uvicorn.run(
        application(json.loads(given.answers.read_text())), host="127.0.0.1", port=given.port, log_level="warning"
    )
