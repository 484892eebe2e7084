"""What the tests with real processes say at their end."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted and recorded as a property: one that runs in a process of pytest-xdist cannot print it."""
    for report in terminalreporter.getreports("passed"):
        for name, counted in report.user_properties:
            terminalreporter.write_line(f"{name}: {counted}")
