"""`python -m servers.model`"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gymckpt.participant import SqliteLedger
from servers.execution_log import ExecutionLog
from servers.http.client import http_client
from servers.http.process import run, server_arguments
from servers.model.app import model_app
from servers.model.backend import Backend, OpenAIBackend
from servers.model.scripted import ScriptedBackend, planned, read_plans
from servers.resources.workplace_assistant.plan import plan as with_reads


def arguments() -> argparse.ArgumentParser:
    """The options of the model server."""
    parser = server_arguments("The policy model server.", name="policy_model")
    parser.add_argument("--ledger", default=":memory:", help="file of the ledger of calls (default: in memory)")
    parser.add_argument("--backend", choices=("scripted", "openai"), default="scripted")
    scripted = parser.add_argument_group("scripted: plays the plan of a task, found by its user message")
    scripted.add_argument("--tasks", type=Path, action="append", default=[], help="JSONL of task rows")
    scripted.add_argument("--with-reads", action="store_true", help="read before and after each workplace change")
    scripted.add_argument("--latency", type=latency, default=(0.0, 0.0), help="seconds per answer, <least>:<most>")
    scripted.add_argument("--seed", type=int, default=0, help="of the latency")
    openai = parser.add_argument_group("openai: asks an OpenAI-compatible server")
    openai.add_argument("--base-url", help="ends before /responses, e.g. http://127.0.0.1:8000/v1")
    openai.add_argument("--model", default="default")
    openai.add_argument("--api-key-variable", default="OPENAI_API_KEY", help="environment variable with the key")
    return parser


def latency(text: str) -> tuple[float, float]:
    """Reads `least:most`. Raises argparse.ArgumentTypeError."""
    least, _, most = text.partition(":")
    try:
        bounds = float(least), float(most or least)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"a latency is <least>:<most> in seconds, got {text!r}") from error
    if not 0 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"a latency is 0 <= least <= most, got {text!r}")
    return bounds


def backend_of(given: argparse.Namespace) -> Backend:
    """The back end that the options ask for. Raises SystemExit when its URL is missing."""
    if given.backend == "openai":
        if given.base_url is None:
            raise SystemExit("error: --backend openai needs --base-url")
        key = os.environ.get(given.api_key_variable, "none")
        return OpenAIBackend(http_client(), given.base_url, given.model, key)
    planner = with_reads_planner if given.with_reads else planned
    plans = {message: plan for file in given.tasks for message, plan in read_plans(file, planner).items()}
    return ScriptedBackend(plans, latency=given.latency, seed=given.seed)


def with_reads_planner(row: dict[str, object]) -> Sequence[dict[str, str]]:
    """The workplace plan of a row, which looks at what it changes."""
    return [{"name": call.name, "arguments": call.arguments} for call in with_reads(row)]


def main() -> None:
    given = arguments().parse_args()
    app = model_app(given.name, backend_of(given), SqliteLedger(given.ledger), ExecutionLog(given.name, given.log))
    run(app, name=given.name, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
