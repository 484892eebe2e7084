"""A checkpoint as the demo looks at it: where each rollout stood, read from the store and not from the servers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gymckpt.participant import Episode, Kind, ParticipantId, decode_json, encode_json
from gymckpt.store import ArtifactStore, contents_of, parts_of
from servers.responses_api import JsonObject, output_item

PLAYING = "invoke_agent"
"""Boundary of an environment whose agent has its turn."""


@dataclass(frozen=True)
class Record:
    """One session in a checkpoint: `state` names its bytes, `seen` is all else that the checkpoint says of it."""

    participant: ParticipantId
    episode: Episode
    session: str
    boundary: str
    state: Any
    seen: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Standing:
    """Where a rollout stood: its conversation so far, the key of its resources session, and whether the agent had its turn."""

    items: list[JsonObject]
    resources_session: str
    playing: bool


@dataclass(frozen=True)
class Cut:
    """The records and the standings of a checkpoint."""

    records: frozenset[Record]
    standings: Mapping[Episode, Standing]


async def read_cut(store: ArtifactStore, manifest: Any) -> Cut:
    """Reads the checkpoint with this manifest. Raises what the store raises."""
    contents = await contents_of(store, manifest)
    records: dict[Episode, list[Record]] = {}
    for exported in contents.participants:
        for found in exported.records:
            seen = (found.revision, found.unreceipted_revision, found.touches)
            record = Record(exported.participant, found.episode, found.session, found.boundary, found.state, seen)
            records.setdefault(found.episode, []).append(record)
    standings = {episode: await _standing(store, own) for episode, own in records.items()}
    return Cut(frozenset(record for own in records.values() for record in own), standings)


def different_records(first: Iterable[Record], second: Iterable[Record], attempts: Mapping[Episode, Episode]) -> int:
    """Sessions of continued episodes (`attempts`: source -> target) that a second checkpoint, taken before anything ran, holds differently or not at all, or
    holds although the first did not."""
    expected = {replace(record, episode=attempts[record.episode]) for record in first if record.episode in attempts}
    targets = set(attempts.values())
    found = {record for record in second if record.episode in targets}
    return len({(record.participant, record.episode, record.session) for record in expected ^ found})


async def _standing(store: ArtifactStore, records: Iterable[Record]) -> Standing:
    items: list[JsonObject] = []
    session, boundary = "", ""
    for record in records:
        if record.participant.kind is Kind.RESOURCES:
            session = record.session
        elif record.participant.kind is Kind.ENVIRONMENT:
            boundary = record.boundary
        if record.participant.kind in (Kind.ENVIRONMENT, Kind.AGENT) and record.state is not None:
            items = max(items, await _conversation(store, record), key=len)
    return Standing(items, session, playing=boundary == PLAYING)


async def _conversation(store: ArtifactStore, record: Record) -> list[JsonObject]:
    """The output items that a session knows, as a response shows them: those of a finished one, or those of the loop so far."""
    parts = await parts_of(store, record.state)
    if "result" in parts:  # of an episode that has finished
        parts = encode_json(json.loads(parts["result"]))
    payload = {name.removeprefix("payload/"): data for name, data in parts.items() if name.startswith("payload/")}
    state = decode_json(payload or parts) if payload or "layout" in parts else {}
    response = state.get("response") or state.get("reply") or {}
    return [output_item(item) for item in response.get("output") or state.get("loop.items") or []]
