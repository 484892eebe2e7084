"""Adapters: how the state of each resources server is captured. Whatever has none is restart-only."""

from gymckpt.nemo_gym.adapters import (  # noqa: F401 - declare what is shipped
    example_single_tool_call,
    plain,
    stateless,
    verifiers,
    wordle,
    workplace_assistant,
)
from gymckpt.nemo_gym.adapters.base import (
    Adapter,
    MappingAdapter,
    RestartOnly,
    Stateless,
    adapter_of,
    declare,
    declared,
)
from gymckpt.nemo_gym.adapters.gymnasium import GymnasiumAdapter

__all__ = [
    "Adapter",
    "GymnasiumAdapter",
    "MappingAdapter",
    "RestartOnly",
    "Stateless",
    "adapter_of",
    "declare",
    "declared",
]
