"""Named moments at which a test may stop a coordinator. They do nothing by default."""

from __future__ import annotations

POINTS = (
    "epoch.created",
    "takeover.answered",
    "takeover.decided",
    "checkpoint.intended",
    "checkpoint.preparing",
    "checkpoint.held",
    "checkpoint.freezing",
    "checkpoint.uploading",
    "checkpoint.publish",
    "checkpoint.decided",
    "checkpoint.published",
    "checkpoint.aborted",
    "restore.pinned",
    "restore.intended",
    "restore.floored",
    "restore.retired",
    "restore.installed",
    "restore.confirmed",
    "restore.decided",
    "restore.activated",
    "restore.aborted",
    "retire.floored",
)


class Faults:
    """Passed to a coordinator; a subclass may raise, wait or end the process in `reach`."""

    async def reach(self, point: str) -> None:
        """The coordinator is at `point`, one of POINTS."""
