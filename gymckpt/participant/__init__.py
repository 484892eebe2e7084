"""The embedding library: what makes a server a participant."""

from gymckpt.core.ids import Episode, ParticipantId
from gymckpt.core.kinds import Capture, Kind
from gymckpt.core.manifest import Touch
from gymckpt.participant.asgi import AdmissionMiddleware
from gymckpt.participant.base import Participant
from gymckpt.participant.call import Call, current_call, identify
from gymckpt.participant.resources import ResourcesParticipant
from gymckpt.participant.state import MappingState, SessionState, decode_json, encode_json

__all__ = [
    "AdmissionMiddleware",
    "Call",
    "Capture",
    "Episode",
    "Kind",
    "MappingState",
    "Participant",
    "ParticipantId",
    "ResourcesParticipant",
    "SessionState",
    "Touch",
    "current_call",
    "decode_json",
    "encode_json",
    "identify",
]
