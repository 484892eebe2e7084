"""Ports for servers that are told theirs before they start."""

from __future__ import annotations

import itertools
import os
import re
import socket

# Below those that the system gives to outgoing connections (from 32768 on Linux): such a connection could take the port before its server does. Each process
# begins at a place of its own and names no port twice.
FIRST, COUNT = 12_000, 20_000
_candidates = (FIRST + (os.getpid() * 97 + at) % COUNT for at in itertools.count())


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens."""
    while True:
        port = next(_candidates)
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) != 0:
                return port


def with_free_ports(script: str, *printed: str) -> str:
    """The script with a free port in place of each that is printed."""
    ports = {port: str(free_port()) for port in printed}
    return re.sub("|".join(ports), lambda found: ports[found[0]], script)
