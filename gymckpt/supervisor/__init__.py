"""Keeps the servers of a run alive: starts again what died, restores what it held, and takes checkpoints on the way."""

from gymckpt.supervisor.config import Config, Program, read_config
from gymckpt.supervisor.supervisor import Event, Supervisor

__all__ = ["Config", "Event", "Program", "Supervisor", "read_config"]
