"""Ending a call without any answer when its server stops: its client sees a connection that ended, as if the process had died, and tries again.

A web server that stops cancels the calls that still run or are held, and answers each with an error of its own. An agent would hand that error to the model
as the answer of a tool. ASGI has no way to end a connection, so it is found among those of the process by the addresses at its two ends.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from gymckpt.participant.call import Scope

Ends = tuple[tuple[Any, ...], tuple[Any, ...]]  # host and port of the client, and of the server

OPEN_FILES = "/dev/fd"


class Connections:
    """The open connections of this process by their ends, looked up when the first call is to be severed."""

    def __init__(self) -> None:
        self._files: dict[Ends, int] = {}

    def sever(self, scope: Scope) -> bool:
        """Ends the connection of a call: nothing is sent over it any more. False when it is not found, as on a Unix socket or behind rewritten addresses."""
        client, server = scope.get("client"), scope.get("server")
        if not client or not server:
            return False
        ends = (tuple(client), tuple(server))
        if not self._shut_down(ends):
            self._files = {found: file for file in _open_files() if (found := _ends(file)) is not None}
            return self._shut_down(ends)
        return True

    def _shut_down(self, ends: Ends) -> bool:
        file = self._files.get(ends)
        if file is None or _ends(file) != ends:  # a number is used again for another connection
            return False
        with socket.socket(fileno=os.dup(file)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        return True


def _open_files() -> list[int]:
    return [int(name) for name in os.listdir(OPEN_FILES)]


def _ends(file: int) -> Ends | None:
    """None for what is no connection over a network."""
    try:
        copy = os.dup(file)
    except OSError:
        return None
    try:
        connection = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    with connection:
        try:
            client, server = connection.getpeername(), connection.getsockname()
        except OSError:
            return None
    return (client[:2], server[:2]) if isinstance(client, tuple) and isinstance(server, tuple) else None
