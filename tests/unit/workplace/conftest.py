"""Tables for every test of the workplace assistant."""

from __future__ import annotations

import pytest

from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables


@pytest.fixture(scope="session")
def pristine() -> Tables:
    """The invented tables; nobody changes them."""
    return synthetic_tables()


@pytest.fixture
def tables(pristine: Tables) -> Tables:
    """A session of its own over the invented tables."""
    return pristine.copy()
