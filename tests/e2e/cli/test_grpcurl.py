"""A person with grpcurl: every port says what it serves, and one round can be driven by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli.processes import LONGEST_COMMAND, Processes, Run, start_run

GRPCURL = Path(sys.executable).with_name("grpcurl")
PARTICIPANT = "gymckpt.v1.ParticipantService"


def grpcurl(address: str, *words: str, request: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    data = () if request is None else ("-d", json.dumps(request))
    command = [str(GRPCURL), "-plaintext", "-emit-defaults", *data, address, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_COMMAND)


def ask(address: str, method: str, request: dict[str, Any] | None = None) -> Any:
    answered = grpcurl(address, method, request=request or {})
    assert answered.returncode == 0, answered.stderr
    return json.loads(answered.stdout)


def reason_of(refused: subprocess.CompletedProcess[str]) -> str:
    """The reason in the details that grpcurl shows."""
    found = re.search(r'"domain":\s*"gymckpt.v1".*?"reason":\s*"([A-Z_]+)"', refused.stderr, re.DOTALL)
    assert found, refused.stderr
    return found[1]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """One run for all: nothing here leaves a gate closed."""
    processes = Processes()
    try:
        yield start_run(processes)
    finally:
        processes.end()


def transition(run: Run, sequence: int) -> dict[str, Any]:
    """What every transition by hand needs: a fence of its own, and the boot id that GetStatus told."""
    boot_id = ask(run.counter.address, f"{PARTICIPANT}/GetStatus")["participant"]["boot_id"]
    return {"fence": {"epoch": 1, "sequence": sequence, "checkpoint_id": f"by-hand-{sequence}"}, "boot_id": boot_id}


def test_every_port_lists_its_services(run: Run) -> None:
    health, reflection = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"
    assert grpcurl(run.counter.address, "list").stdout.split() == sorted([PARTICIPANT, health, reflection])
    assert grpcurl(run.coordinator.address, "list").stdout.split() == sorted(
        ["gymckpt.v1.ArtifactStoreService", "gymckpt.v1.CoordinatorService", health, reflection]
    )


def test_services_messages_and_error_details_are_described(run: Run) -> None:
    described = grpcurl(run.counter.address, "describe", PARTICIPANT).stdout
    assert "rpc Transition ( .gymckpt.v1.TransitionRequest ) returns ( .gymckpt.v1.TransitionResponse );" in described
    for name in ("gymckpt.v1.TransitionRequest", "google.rpc.ErrorInfo", "google.rpc.BadRequest"):
        assert f"{name} is a message" in grpcurl(run.counter.address, "describe", name).stdout
    assert "gymckpt.v1.Reason is an enum" in grpcurl(run.coordinator.address, "describe", "gymckpt.v1.Reason").stdout


def test_health_is_told_per_service(run: Run) -> None:
    for address, service in ((run.counter.address, PARTICIPANT), (run.coordinator.address, "")):
        assert ask(address, "grpc.health.v1.Health/Check", {"service": service}) == {"status": "SERVING"}


def test_status_says_who_answers_and_what_it_holds(run: Run) -> None:
    run.count("r1", 5)
    status = ask(run.counter.address, f"{PARTICIPANT}/GetStatus")
    assert status["participant"]["id"] == {"kind": "PARTICIPANT_KIND_RESOURCES", "name": "counter"}
    assert status["participant"]["boot_id"] == run.counter.ready["boot_id"]
    assert status["holds"]["gate"] == "GATE_STATE_OPEN"
    assert status["report"]["ready"] is True
    assert status["report"]["counts"]["sessions"] == "1"


def test_a_gate_is_closed_and_opened_by_hand(run: Run) -> None:
    """C01, C05."""
    method, address, ours = f"{PARTICIPANT}/Transition", run.counter.address, transition(run, 1)
    prepare = {**ours, "number": 1, "prepare": {"timeout": "5s", "gate_lease": "60s"}}

    prepared = ask(address, method, prepare)

    assert (prepared["gate"], prepared["prepared"]["report"]["ready"]) == ("GATE_STATE_CLOSED", True)
    status = ask(address, f"{PARTICIPANT}/GetStatus")["holds"]
    assert (status["gate"], status["gate_fence"]["checkpoint_id"]) == ("GATE_STATE_CLOSED", "by-hand-1")

    aborted = ask(address, method, {**ours, "number": 2, "abort": {"why": "only looking"}})

    assert (aborted["gate"], aborted["abort_done"]["already"]) == ("GATE_STATE_OPEN", False)
    again = grpcurl(address, method, request={**prepare, "number": 3})
    assert "Code: FailedPrecondition" in again.stderr
    assert reason_of(again) == "STALE_CHECKPOINT"


@pytest.mark.parametrize(
    ("change", "code", "reason", "message"),
    [
        ({"boot_id": "0" * 32}, "FailedPrecondition", "STALE_BOOT", "0" * 32),
        ({"boot_id": ""}, "InvalidArgument", "INVALID_FIELD", "boot_id"),
        ({"fence": {"epoch": 1, "sequence": 2}}, "InvalidArgument", "INVALID_FIELD", "fence.checkpoint_id"),
        ({"number": 0}, "InvalidArgument", "INVALID_FIELD", "number"),
        ({"prepare": {"gate_lease": "60s"}}, "InvalidArgument", "INVALID_FIELD", "prepare.timeout"),
    ],
)
def test_a_refusal_shows_its_code_its_reason_and_what_it_is_about(
    run: Run, change: dict[str, Any], code: str, reason: str, message: str
) -> None:
    """X20, X26."""
    request = {**transition(run, 2), "number": 1, "prepare": {"timeout": "5s", "gate_lease": "60s"}, **change}
    refused = grpcurl(run.counter.address, f"{PARTICIPANT}/Transition", request=request)
    assert refused.returncode != 0
    assert f"Code: {code}" in refused.stderr
    assert reason_of(refused) == reason
    assert message in refused.stderr
    assert ask(run.counter.address, f"{PARTICIPANT}/GetStatus")["holds"]["gate"] == "GATE_STATE_OPEN"
