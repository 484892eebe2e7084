"""The artifact store: one interface, its back ends, its client and its server."""

from gymckpt.store.backend import Backend
from gymckpt.store.client import StoreClient
from gymckpt.store.closure import Closure, closure_of
from gymckpt.store.contents import Contents, contents_of, parts_of
from gymckpt.store.interface import ArtifactStore, Damage, NameEntry, ScrubProgress, StoreInfo
from gymckpt.store.local import LocalStore
from gymckpt.store.memory import MemoryStore
from gymckpt.store.servicer import StoreServicer, serve_store

__all__ = [
    "ArtifactStore",
    "Backend",
    "Closure",
    "Contents",
    "Damage",
    "LocalStore",
    "MemoryStore",
    "NameEntry",
    "ScrubProgress",
    "StoreClient",
    "StoreInfo",
    "StoreServicer",
    "closure_of",
    "contents_of",
    "parts_of",
    "serve_store",
]
