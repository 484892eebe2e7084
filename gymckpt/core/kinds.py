"""The closed lists of the protocol, and the orders that follow from them."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """What a participant does. Values are those of the wire; their order is the order of prepare."""

    ENVIRONMENT = 1
    MODEL = 2
    AGENT = 3
    RESOURCES = 4

    def __str__(self) -> str:
        return self.name.lower()


# Callers park before the servers they call; the model before the agents, so that agents waiting for it reach a boundary.
PREPARE_ORDER: tuple[tuple[Kind, ...], ...] = ((Kind.ENVIRONMENT,), (Kind.MODEL,), (Kind.AGENT,), (Kind.RESOURCES,))
# No server reopens before the servers that it calls.
RESUME_ORDER: tuple[tuple[Kind, ...], ...] = tuple(reversed(PREPARE_ORDER))
# Once a caller is stopped, nothing can call the callee for it.
RETIRE_ORDER: tuple[tuple[Kind, ...], ...] = ((Kind.ENVIRONMENT,), (Kind.AGENT,), (Kind.MODEL, Kind.RESOURCES))


class GateState(enum.IntEnum):
    """Whether new work may start."""

    OPEN = 1
    CLOSING = 2
    CLOSED = 3


class ExportState(enum.IntEnum):
    """What a participant holds of a cut."""

    NONE = 1
    FROZEN = 2
    UPLOADED = 3


class Capture(enum.IntEnum):
    """How a participant's state takes part in a checkpoint."""

    STATELESS = 1
    EXPORTED = 2
    RESTART_ONLY = 3
    RESIDENT = 4


class Fate(enum.IntEnum):
    """What becomes of one episode of a restore."""

    RESTORED = 1
    RESTARTED = 2
    LOST = 3
