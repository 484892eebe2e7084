"""Adapters: how the state of each resources server is captured. Whatever has none is restart-only."""

from gymckpt.nemo_gym.adapters import games, plain, verifiers, workplace_assistant  # noqa: F401 - declare what is shipped
from gymckpt.nemo_gym.adapters.base import (
    Adapter,
    MappingAdapter,
    RestartOnly,
    Stateless,
    adapter_of,
    declare,
    declared,
)

__all__ = ["Adapter", "MappingAdapter", "RestartOnly", "Stateless", "adapter_of", "declare", "declared"]
