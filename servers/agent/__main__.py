"""`python -m servers.agent`"""

from __future__ import annotations

from functools import partial

from gymckpt.participant import Kind
from servers.agent.app import agent_app
from servers.execution_log import ExecutionLog
from servers.http.client import http_client
from servers.http.peers import Peer
from servers.http.process import run, server_arguments


def main() -> None:
    parser = server_arguments("The agent server: a loop of model calls and tool calls.", name="simple_agent")
    parser.add_argument("--model", type=partial(Peer.parse, Kind.MODEL), required=True, help="<name>=<url>")
    parser.add_argument(
        "--resources",
        type=partial(Peer.parse, Kind.RESOURCES),
        help="<name>=<url>, the tools of runs without a session",
    )
    parser.add_argument(
        "--max-steps", type=int, default=64, help="answers of the model per loop (default: %(default)s)"
    )
    given = parser.parse_args()
    log = ExecutionLog(given.name, given.log)
    app = agent_app(
        given.name,
        http_client(),
        model=given.model,
        resources=given.resources,
        log=log,
        max_steps=given.max_steps,
    )
    run(app, name=given.name, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
