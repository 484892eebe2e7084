"""`python -m servers.environment`"""

from __future__ import annotations

from functools import partial

from gymckpt.participant import Kind
from servers.environment.app import environment_app
from servers.execution_log import ExecutionLog
from servers.http.client import http_client
from servers.http.peers import Peer
from servers.http.process import run, server_arguments


def main() -> None:
    parser = server_arguments("The environment server: one agent turn per episode.", name="single_agent_turn")
    parser.add_argument("--agent", type=partial(Peer.parse, Kind.AGENT), required=True, help="<name>=<url>")
    parser.add_argument("--resources", type=partial(Peer.parse, Kind.RESOURCES), required=True, help="<name>=<url>")
    parser.add_argument("--deadline", type=float, help="seconds that an episode may take, pauses not counted")
    given = parser.parse_args()
    log = ExecutionLog(given.name, given.log)
    app = environment_app(
        given.name, http_client(), agent=given.agent, resources=given.resources, log=log, deadline=given.deadline
    )
    run(app, name=given.name, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
