"""The shipped workplace_assistant in a process whose pandas says that it is another one: OTHER_PANDAS."""

from __future__ import annotations

import os

import pandas
from resources_servers.workplace_assistant.app import WorkbenchResourcesServer

pandas.__version__ = os.environ["OTHER_PANDAS"]

__all__ = ["WorkbenchResourcesServer"]
