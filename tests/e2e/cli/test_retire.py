"""`gymckpt retire` against real processes."""

from __future__ import annotations

import pytest

from tests.e2e.cli.processes import Refused, Run


def test_what_is_retired_is_freed_and_refused_from_then_on(run: Run) -> None:
    """X28, S01: the attempt after it is welcome."""
    run.count("r1", 5, "s1")
    run.count("r2", 7, "s2")
    retired = run("retire", "r1", "--json")
    assert (retired.code, retired.json) == (0, {"retired": ["r1"]})
    assert run("checkpoint", "create", "step-1", "--json").code == 0
    assert run("checkpoint", "show", "step-1", "--json").json["episodes"] == ["r2"]
    with pytest.raises(Refused, match="STALE_ATTEMPT"):
        run.count("r1", 1, "s3")
    run.count("r1-a1", 1, "s4")


def test_a_retire_needs_open_gates(run: Run) -> None:
    """X33: it is told who holds them, and nothing is refused yet."""
    run.count("r1", 5)
    assert run("checkpoint", "create", "step-1", "--resume", "by-caller").code == 0
    refused = run("retire", "r1", "--json")
    assert (refused.code, refused.error["reason"]) == (1, "CONFLICT")
    assert "step-1" in refused.error["message"]
    assert run("checkpoint", "resume", "step-1").code == 0
    assert run("retire", "r1").stdout == "retired 1 episode\n"
