"""`python -m servers.resources.counter`"""

from __future__ import annotations

from servers.execution_log import ExecutionLog
from servers.http.process import run, server_arguments
from servers.resources.counter.app import counter_app


def main() -> None:
    given = server_arguments("The counter resources server.", name="counter").parse_args()
    run(counter_app(given.name, ExecutionLog(given.name, given.log)), name=given.name, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
