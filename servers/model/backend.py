"""What answers for the model."""

from __future__ import annotations

from typing import Protocol

import httpx

from servers.http.refusals import CalledServerFailed
from servers.responses_api import JsonObject


class UpstreamFailed(CalledServerFailed):
    """The upstream did not answer, or answered with a status that is no success."""


class Backend(Protocol):
    """Both answers have at least the keys that an OpenAI-compatible server sends; the server fills in the rest."""

    async def responses(self, body: JsonObject) -> JsonObject: ...

    async def chat(self, body: JsonObject) -> JsonObject: ...


class OpenAIBackend:
    """Any OpenAI-compatible server. `base_url` ends before `/responses`, usually in `/v1`."""

    def __init__(self, http: httpx.AsyncClient, base_url: str, model: str, api_key: str) -> None:
        self._http = http
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._headers = {"authorization": f"Bearer {api_key}"}

    async def responses(self, body: JsonObject) -> JsonObject:
        return await self._ask("/responses", body)

    async def chat(self, body: JsonObject) -> JsonObject:
        return await self._ask("/chat/completions", body)

    async def _ask(self, route: str, body: JsonObject) -> JsonObject:
        url = self._base_url + route
        sent = {name: value for name, value in body.items() if name != "stream"} | {"model": self._model}
        try:
            received = await self._http.post(url, json=sent, headers=self._headers)
        except httpx.TransportError as error:
            raise UpstreamFailed(f"{url} was not reached: {error!r}") from error
        if not received.is_success:
            raise UpstreamFailed(f"{url} answered {received.status_code}: {received.text[:300]}")
        answer: JsonObject = received.json()
        return answer
