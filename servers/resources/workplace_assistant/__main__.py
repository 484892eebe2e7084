"""`python -m servers.resources.workplace_assistant`"""

from __future__ import annotations

from pathlib import Path

from servers.execution_log import ExecutionLog
from servers.http.process import run, server_arguments
from servers.resources.workplace_assistant.app import workplace_app
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import load_tables


def main() -> None:
    parser = server_arguments("The Workplace Assistant resources server.", name="workplace_assistant")
    parser.add_argument("--tables", type=Path, help="directory of the six CSV files (default: invented tables)")
    given = parser.parse_args()
    pristine = synthetic_tables() if given.tables is None else load_tables(given.tables)
    app = workplace_app(given.name, pristine, ExecutionLog(given.name, given.log))
    run(app, name=given.name, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
