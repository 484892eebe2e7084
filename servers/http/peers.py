"""The servers that a server calls, and what every call to them says of itself."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from gymckpt.participant import (
    CONTINUE_HEADER,
    EPISODE_HEADER,
    REQUEST_ID_HEADER,
    WITHIN_HEADER,
    Episode,
    Kind,
    ParticipantId,
    current_call,
)

_ACTIVATION = re.compile(r"activation-([0-9]{1,6})\Z")


@dataclass(frozen=True)
class Peer:
    """A server by its instance name and base URL (no slash at the end)."""

    kind: Kind
    name: str
    url: str

    @property
    def id(self) -> ParticipantId:
        return ParticipantId(self.kind, self.name)

    def for_episode(self, episode: Episode | None) -> str:
        """The base URL of calls inside an episode, which name it in their path too."""
        return self.url if episode is None else f"{self.url}/ng-rollout/{episode}"

    @classmethod
    def parse(cls, kind: Kind, text: str) -> Peer:
        """Reads `name=url`. Raises argparse.ArgumentTypeError."""
        name, equals, url = text.partition("=")
        if not equals or not name or not url.startswith(("http://", "https://")):
            raise argparse.ArgumentTypeError(f"a server is named <name>=http://<host>:<port>, got {text!r}")
        return cls(kind, name, url.rstrip("/"))


def call_headers(episode: Episode | None, *, request_id: str | None = None, continues: bool = False) -> dict[str, str]:
    """The identity of an outgoing call. `continues` goes with calls that should find restored state. What is called while a call within a step is served
    is part of that step too."""
    headers: dict[str, str] = {}
    if episode is not None:
        headers[EPISODE_HEADER] = str(episode)
    if request_id is not None:
        headers[REQUEST_ID_HEADER] = request_id
    if continues:
        headers[CONTINUE_HEADER] = "1"
    serving = current_call()
    if serving is not None and serving.within is not None:
        headers[WITHIN_HEADER] = str(serving.within)
    return headers


def activation_id(index: int) -> str:
    """The request id of a session's activation number `index`, from 0: sent again, it gets the same reply."""
    return f"activation-{index}"


def activation_index(request_id: str | None) -> int | None:
    """The inverse; None for a call that does not say which activation it is."""
    found = _ACTIVATION.match(request_id or "")
    return int(found[1]) if found else None
