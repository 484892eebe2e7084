"""NeMo Gym servers as participants, without editing NeMo Gym. Needs nemo-gym 0.7 and its Python."""

from gymckpt.nemo_gym.adapters import Adapter, GymnasiumAdapter, MappingAdapter, RestartOnly, Stateless, declare
from gymckpt.nemo_gym.embed import make_participant
from gymckpt.nemo_gym.settings import Settings

__all__ = [
    "Adapter",
    "GymnasiumAdapter",
    "MappingAdapter",
    "RestartOnly",
    "Settings",
    "Stateless",
    "declare",
    "make_participant",
]
