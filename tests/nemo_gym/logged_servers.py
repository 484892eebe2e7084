"""Shipped servers that also log every call that they execute: `tests.nemo_gym.logged_servers:<class>` is the shipped class of that name.

What NeMo Gym does not ship, or what would make two runs differ, is put in place: Wordle's list of words, and the seeds of Blackjack's generators.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from gymckpt.participant.call import Receive, Scope, Send
from gymckpt.participant.http import Body
from tests.nemo_gym.environments import ENVIRONMENTS
from tests.nemo_gym.executions import append

SEEDS = (82, 149, 702, 1634, 1905)  # five hits do not bust


class Log:
    """Inside of everything that may hold a call: what passes here is executed."""

    def __init__(self, app: Any, component: str) -> None:
        self._app = app
        self._component = component

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            body = Body(receive)
            await body.read()
            said = json.loads(b"".join(body.chunks))
            append(
                {
                    "server": self._component,
                    "session": scope["session"]["session_id"],
                    "path": scope["path"],
                    "body": said,
                }
            )
            receive = body.receive
        await self._app(scope, receive, send)


def prepare(component: str, module: Any) -> None:
    if component == "wordle":
        module.GUESSES_PATH = Path(os.environ["WORDS"])
    elif component == "blackjack":
        seeds = itertools.cycle(SEEDS)
        module.random = SimpleNamespace(Random=lambda: random.Random(next(seeds)))


def __getattr__(name: str) -> Any:
    environment = next((known for known in ENVIRONMENTS if known.server == name), None)
    if environment is None:
        raise AttributeError(f"no environment has a server {name!r}")
    component = environment.name
    module = importlib.import_module(f"resources_servers.{component}.app")
    prepare(component, module)
    shipped = getattr(module, name)

    def setup_webserver(self: Any) -> FastAPI:
        app: FastAPI = shipped.setup_webserver(self)
        app.router.middleware_stack = Log(app.router.middleware_stack, component)
        return app

    members = {"__module__": shipped.__module__, "__qualname__": name, "setup_webserver": setup_webserver}
    return type(shipped)(name, (shipped,), members)
