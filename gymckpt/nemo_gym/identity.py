"""Whose call it is, as stock NeMo Gym clients tell it: by a signed cookie, a path prefix, the body of the seed, or an MCP session token."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadSignature, URLSafeSerializer
from nemo_gym.base_resources_server import NEMO_GYM_MCP_SESSION_TOKEN_HEADER
from nemo_gym.rollout_correlation import current_rollout_id, maybe_rollout_id_from_run_body

from gymckpt.core.ids import Episode
from gymckpt.errors import InvalidField
from gymckpt.participant.call import Call, Scope, identify

MARK = "gymckpt"
"""Key of the session cookie under which the client brings back, with its next call, what it was answered last: episode and revision."""
SEEDED = "gymckpt.episode"
"""Key of an ASGI scope: the episode that the body of a seed names."""
MCP_ROUTE = "/mcp"
MCP_SALT = "nemo-gym-mcp-session-token"


@dataclass(frozen=True, slots=True)
class GymCall(Call):
    """`marked`: the episode of the client's last answer in this session, and `seen` the session's revision then; 0 where the client brings no mark."""

    marked: Episode | None = None
    seen: int = 0


class Identity:
    """Reads the scope that NeMo Gym's own middleware has prepared: session decoded, prefix stripped.

    The header `x-gymckpt-episode` names the episode of any call. Without it only a seed is asked for its episode (prefix, then body, then the session itself);
    every later call is known by its session alone, because an agent that outlived a restore goes on under the prefix of the attempt it was started as.
    """

    def __init__(self, secret: str, seed_routes: frozenset[str]) -> None:
        """`secret` signs the server's cookies and tokens."""
        self._tokens = URLSafeSerializer(secret, salt=MCP_SALT)
        self._seeds = seed_routes

    def is_seed(self, scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._seeds

    def __call__(self, scope: Scope) -> GymCall:
        """Raises InvalidField."""
        call = identify(scope)
        session, is_new = call.session, call.session_is_new
        if call.route == MCP_ROUTE:
            session, is_new = self._token_session(scope), False
        marked, seen = _mark(scope, session)
        episode = call.episode
        if episode is None and self.is_seed(scope):
            episode = prefix_episode() or scope.get(SEEDED) or _own_episode(session)
        elif episode is None and (session is None or is_new):
            episode = prefix_episode()
        known = {field.name: getattr(call, field.name) for field in dataclasses.fields(Call)}
        changed = {"episode": episode, "session": session, "session_is_new": is_new}
        return GymCall(**{**known, **changed}, marked=marked, seen=seen)

    def _token_session(self, scope: Scope) -> str | None:
        name = NEMO_GYM_MCP_SESSION_TOKEN_HEADER.lower().encode()
        token = next((value for key, value in scope["headers"] if key == name), None)
        if token is None:
            return None
        try:
            claims = self._tokens.loads(token)
        except BadSignature:
            return None  # NeMo Gym refuses it
        return claims.get("sid") if isinstance(claims, dict) else None


def prefix_episode() -> Episode | None:
    """The episode of the path prefix that NeMo Gym has stripped. Raises InvalidField."""
    text = current_rollout_id()
    return Episode.parse(text) if text is not None else None


def body_episode(body: bytes) -> Episode | None:
    """The episode that a seed's body names: `episode_id`, or the collector's `_ng_*` keys; None when it names none. Raises InvalidField."""
    return said_episode(said_in(body))


def said_in(body: bytes) -> Mapping[str, Any]:
    """The JSON object that a body is; empty for anything else, which NeMo Gym refuses."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, Mapping) else {}


def said_episode(said: Mapping[str, Any]) -> Episode | None:
    """See `body_episode`."""
    typed = said.get("episode_id")
    if isinstance(typed, Mapping) and isinstance(typed.get("rollout_id"), str):
        return Episode(typed["rollout_id"], typed.get("attempt") or 0)
    try:
        text = maybe_rollout_id_from_run_body(said)
    except (TypeError, ValueError) as error:
        raise InvalidField(f"the body does not name its rollout: {error}", field="_ng_rollout_id") from error
    return Episode.parse(text) if text is not None else None


def mark(scope: Scope, episode: Episode, revision: int) -> None:
    """Puts the mark into the session, from which NeMo Gym makes the cookie of the answer."""
    scope["session"][MARK] = [str(episode), revision]


def _mark(scope: Scope, session: str | None) -> tuple[Episode | None, int]:
    found = scope.get("session") or {}
    if MARK not in found or found.get("session_id") != session:
        return None, 0
    text, revision = found[MARK]
    return Episode.parse(text), revision


def _own_episode(session: str | None) -> Episode | None:
    """A seed that names nobody is a rollout of its own; the session's hyphens would make some of them end like an attempt."""
    return Episode(session.replace("-", "")) if session is not None else None
