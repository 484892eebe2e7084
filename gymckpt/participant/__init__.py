"""The embedding library: what makes a server a participant."""

from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import Touch
from gymckpt.participant.activation import Activation
from gymckpt.participant.agent import AgentParticipant
from gymckpt.participant.asgi import AdmissionMiddleware
from gymckpt.participant.base import Participant
from gymckpt.participant.call import (
    CONTINUE_HEADER,
    EPISODE_HEADER,
    REASON_HEADER,
    REQUEST_ID_HEADER,
    RESTART_HEADER,
    REVISION_HEADER,
    SESSION_HEADER,
    VERIFY_HEADER,
    WITHIN_HEADER,
    Call,
    current_call,
    identify,
)
from gymckpt.participant.environment import EnvironmentParticipant, Run
from gymckpt.participant.http import http_refusal
from gymckpt.participant.ledger import Ledger, SqliteLedger
from gymckpt.participant.model import ModelCall, ModelParticipant
from gymckpt.participant.resources import ResourcesParticipant
from gymckpt.participant.state import MappingState, SessionState, decode_json, encode_json

__all__ = [
    "CONTINUE_HEADER",
    "EPISODE_HEADER",
    "REASON_HEADER",
    "REQUEST_ID_HEADER",
    "RESTART_HEADER",
    "REVISION_HEADER",
    "SESSION_HEADER",
    "VERIFY_HEADER",
    "WITHIN_HEADER",
    "Activation",
    "AdmissionMiddleware",
    "AgentParticipant",
    "Call",
    "Capture",
    "EnvironmentParticipant",
    "Episode",
    "Kind",
    "Ledger",
    "MappingState",
    "ModelCall",
    "ModelParticipant",
    "Participant",
    "ParticipantId",
    "ResourcesParticipant",
    "Run",
    "SessionState",
    "SqliteLedger",
    "Touch",
    "current_call",
    "decode_json",
    "encode_json",
    "http_refusal",
    "identify",
]
