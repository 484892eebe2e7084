"""A finished response as server-sent events."""

from __future__ import annotations

import json

from servers.responses_api import JsonObject


def response_events(response: JsonObject) -> bytes:
    """The events `response.created`, one `response.output_item.done` per item, `response.completed`."""
    started = {**response, "output": [], "status": "in_progress"}
    events: list[JsonObject] = [{"type": "response.created", "response": started}]
    events += [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(response["output"])
    ]
    events.append({"type": "response.completed", "response": response})
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)
