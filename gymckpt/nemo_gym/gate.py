"""The gate inside a NeMo Gym server: the admission of the library, with a seed's episode read from its body and every answer marked."""

from __future__ import annotations

from gymckpt.errors import InvalidField
from gymckpt.nemo_gym.identity import SEEDED, Identity, body_episode, mark
from gymckpt.nemo_gym.participants import GymResources
from gymckpt.participant.asgi import AdmissionMiddleware, App
from gymckpt.participant.call import REVISION_HEADER, Message, Receive, Scope, Send
from gymckpt.participant.http import Body, refuse

_REVISION = REVISION_HEADER.encode()


class Gate:
    """Pure ASGI, and the innermost middleware: the session is decoded, the prefix stripped, and whatever it answers still gets its cookie."""

    def __init__(self, app: App, participant: GymResources, identity: Identity) -> None:
        self._participant = participant
        self._identity = identity
        self._admission = AdmissionMiddleware(app, participant, identity)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._participant.enabled:
            await self._admission(scope, receive, send)
            return
        seed = b""
        if self._identity.is_seed(scope):
            body = Body(receive)
            await body.read()
            if body.gone:
                return
            seed = b"".join(body.chunks) if body.complete else b""
            try:
                scope[SEEDED] = body_episode(seed)
            except InvalidField as error:
                await refuse(error, send)
                return
            receive = body.receive

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._mark(scope, message, seed)
            await send(message)

        await self._admission(scope, receive, marked)

    def _mark(self, scope: Scope, answer: Message, seed: bytes) -> None:
        """The client learns the revision after its call, and brings it back with the next one; a call without a session, or a failed seed, has none."""
        revision = next((int(value) for name, value in answer.get("headers", ()) if name == _REVISION), 0)
        session = self._participant.sessions.get((scope.get("session") or {}).get("session_id", ""))
        if session is not None and revision:
            mark(scope, session.episode, revision)
            if seed:
                self._participant.seeded(session.key, seed)
