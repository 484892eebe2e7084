"""The `checkpoint:` block of NeMo Gym's global configuration."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gymckpt.errors import InvalidField

BLOCK = "checkpoint"


@dataclass(frozen=True)
class Settings:
    """`coordinator` and `store` are `host:port`, the store is the coordinator's unless it is named; gRPC binds `listen`, by default a free port of 127.0.0.1.

    `adapters` are modules that declare adapters when they are imported.
    """

    coordinator: str
    store: str | None = None
    listen: str = "127.0.0.1:0"
    adapters: tuple[str, ...] = ()

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> Settings | None:
        """The settings of a global configuration; None when it has no block. Raises InvalidField naming the key."""
        block = configuration.get(BLOCK)
        if block is None:
            return None
        if not isinstance(block, Mapping):
            raise InvalidField(f"{BLOCK} must be a mapping, got {block!r:.80}", field=BLOCK)
        known = [field.name for field in fields(cls)]
        for key, value in block.items():
            name = f"{BLOCK}.{key}"
            if key not in known:
                raise InvalidField(f"{name} is unknown; known are {', '.join(known)}", field=name)
            texts = value if key == "adapters" and not isinstance(value, str) else [value]
            if not all(isinstance(text, str) and text for text in texts):
                raise InvalidField(f"{name} must be text, got {value!r:.80}", field=name)
        if "coordinator" not in block:
            raise InvalidField(f"{BLOCK}.coordinator is required: where does `gymckpt serve` listen?", field=BLOCK)
        adapters = block.get("adapters", ())
        modules = (adapters,) if isinstance(adapters, str) else tuple(adapters)
        return cls(**{**{key: value for key, value in block.items() if key != "adapters"}, "adapters": modules})

    def load_adapters(self) -> None:
        """Imports the modules of `adapters`. Raises InvalidField for one that is not there."""
        for module in self.adapters:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise InvalidField(f"{BLOCK}.adapters names {module!r}: {error}", field=f"{BLOCK}.adapters") from error
