"""Real signals to `gymckpt serve` and to a participant while a checkpoint is under way."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.processes import LONGEST_COMMAND, REPOSITORY, Processes, Ran, Run, ended, until

SOON = 8.0  # seconds; less than any grace, lease or time-out that a process might wait for instead, and enough on a busy machine


@pytest.fixture
def stored(processes: Processes, tmp_path: Path) -> Run:
    """A run whose store is a directory, and in which r1 is encoded only when it is let."""
    return slow_run(processes, tmp_path)


def slow_run(processes: Processes, tmp_path: Path, *serve: str, grace: str = "30") -> Run:
    coordinator = processes.serve("--store", str(tmp_path / "store"), *serve)
    counter = processes.member("counter", coordinator.address, "--grace", grace)
    run = Run(processes, coordinator, counter, processes.member("model", coordinator.address))
    run.count("r1", 5, session="slow")
    return run


@pytest.fixture
def uploading(stored: Run) -> Iterator[tuple[Run, subprocess.Popen[str]]]:
    """With a checkpoint step-1 that has its cut."""
    creating = stored.creating("step-1")
    until(lambda: stored.stage("step-1") == "UPLOADING", "the cut")
    yield stored, creating
    stored.encode()
    creating.kill()
    creating.communicate()


def quickly(popen: subprocess.Popen[str]) -> int:
    """Exit code of a process that was told to end; one that takes long fails the test."""
    popen.wait(SOON)
    return popen.returncode


def test_sigterm_of_serve_before_the_cut_opens_every_gate_and_tells_the_caller(run: Run, held: str) -> None:
    """L09, X14, C05: not when the lease ends; the one tool call that it waited for goes on."""
    creating = run.creating("step-1", "--gate-lease", "1h", "--prepare-timeout", "1h")
    until(lambda: run.stage("step-1") == "PREPARING", "the checkpoint")

    run.coordinator.popen.send_signal(signal.SIGTERM)

    assert quickly(run.coordinator.popen) == 0
    failed = ended(creating)
    assert (failed.code, failed.error["reason"]) == (1, "CHECKPOINT_ABORTED")
    assert "the coordinator was asked to stop" in failed.error["message"]
    assert run.call("/add?by=1", held, timeout=SOON) == {"value": 6}


def test_sigterm_of_serve_after_the_cut_publishes_it_first(
    processes: Processes, uploading: tuple[Run, subprocess.Popen[str]]
) -> None:
    """L09, S04."""
    run, creating = uploading
    run.coordinator.popen.send_signal(signal.SIGTERM)
    until(lambda: run("retire", "r9", "--json").code == 1, "a coordinator that begins nothing more")
    refused = run("checkpoint", "create", "step-2", "--json")
    assert (refused.code, refused.error["reason"]) == (1, "CONFLICT")
    assert "start `gymckpt serve` again" in refused.error["next"]

    run.encode()

    published = ended(creating)
    assert (published.code, published.json["checkpoint"]["stage"]) == (0, "PUBLISHED")
    assert quickly(run.coordinator.popen) == 0
    successor = processes.serve("--store", run.coordinator.ready["store"], "--listen", run.coordinator.address)
    assert successor.ready["epoch"] == 2
    assert run("checkpoint", "show", "latest", "--json").json["checkpoint"]["checkpoint_id"] == "step-1"


def test_serve_never_outlives_its_grace(processes: Processes, tmp_path: Path) -> None:
    """L09, X14: the upload would never end, and the gates were to stay closed until then."""
    run = slow_run(processes, tmp_path, "--grace", "4s")
    creating = run.creating("step-1", "--resume", "after-publish", "--gate-lease", "1h")
    until(lambda: run.stage("step-1") == "UPLOADING", "the cut")

    run.coordinator.popen.send_signal(signal.SIGINT)

    assert quickly(run.coordinator.popen) == 0
    failed = ended(creating)
    assert (failed.code, failed.error["reason"]) == (1, "CHECKPOINT_ABORTED")
    assert run.call("/add?by=1", "r1", "slow", timeout=SOON) == {"value": 6}
    run.encode()


def test_a_second_signal_ends_serve_at_once_and_the_next_one_decides(
    processes: Processes, uploading: tuple[Run, subprocess.Popen[str]]
) -> None:
    """X07."""
    run, creating = uploading
    run.coordinator.popen.send_signal(signal.SIGTERM)
    until(lambda: run("retire", "r9", "--json").code == 1, "a coordinator that begins nothing more")
    run.coordinator.popen.send_signal(signal.SIGTERM)
    assert quickly(run.coordinator.popen) == -signal.SIGTERM
    assert ended(creating).code == 3
    processes.serve("--store", run.coordinator.ready["store"], "--listen", run.coordinator.address)
    shown = run("checkpoint", "show", "step-1", "--json").json["checkpoint"]
    assert (shown["stage"], "succeeded by epoch 2" in shown["why_aborted"]) == ("ABORTED", True)


def test_two_signals_that_are_heard_together_end_serve_at_once(
    uploading: tuple[Run, subprocess.Popen[str]],
) -> None:
    """X07: whoever interrupts a group of processes, and forwards its own signal to each, sends both."""
    run, creating = uploading
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        run.coordinator.popen.send_signal(number)
    assert quickly(run.coordinator.popen) in (-signal.SIGTERM, -signal.SIGINT)
    assert ended(creating).code == 3


class HeldCall(threading.Thread):
    """One tool call; `answer` is what came back, or how its connection ended."""

    def __init__(self, run: Run, route: str) -> None:
        super().__init__()
        self._address = run.counter.ready["http"].removeprefix("http://")
        self._route = route
        self.answer = ""
        self.sent = threading.Event()
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=LONGEST_COMMAND)
        headers = {"x-gymckpt-episode": "r1", "x-gymckpt-session": "s1"}
        connection.request("POST", self._route, headers=headers)
        self.sent.set()
        try:
            answer = connection.getresponse()
            self.answer = f"{answer.status} {answer.read().decode()}"
        except (http.client.RemoteDisconnected, ConnectionResetError):
            self.answer = "the connection ended"
        finally:
            connection.close()


@pytest.mark.parametrize(("route", "closed"), [("/add?by=1", True), ("/hold", False)], ids=["held", "running"])
def test_a_participant_that_ends_gives_no_answer_that_an_agent_could_take_for_a_tools(
    run: Run, route: str, closed: bool
) -> None:
    """X38, C05: neither to a call that is held nor to one that runs; a connection that ended is tried again."""
    run.count("r1", 5)
    if closed:
        assert run("checkpoint", "create", "step-1", "--resume", "by-caller", "--gate-lease", "1h").code == 0
    calls = [HeldCall(run, route) for _ in range(3)]
    for call in calls:
        assert call.sent.wait(LONGEST_COMMAND)
    # Whatever came before this answer on other connections has been read.
    with pytest.raises(TimeoutError):
        run.call(route, "r1", timeout=0.5)

    run.counter.popen.send_signal(signal.SIGTERM)

    assert quickly(run.counter.popen) == -signal.SIGTERM  # uvicorn raises it again when all is closed
    for call in calls:
        call.join(LONGEST_COMMAND)
    assert [call.answer for call in calls] == ["the connection ended"] * 3


def test_a_participant_that_has_left_is_named_at_once(run: Run) -> None:
    """X24: by whatever asks for it, long before anybody could have been silent for too long."""
    run.counter.popen.send_signal(signal.SIGTERM)
    quickly(run.counter.popen)
    began = time.monotonic()
    refused = run("checkpoint", "create", "step-1", "--json")
    assert time.monotonic() - began < SOON
    assert (refused.code, refused.error["reason"]) == (1, "MEMBER_MISSING")
    assert "resources/counter" in refused.error["message"]


def test_a_participant_hands_its_cut_over_before_it_ends(uploading: tuple[Run, subprocess.Popen[str]]) -> None:
    """X13, protocol section 5 of the losses: its manifest is stored, the cut is older than the loss."""
    run, creating = uploading
    run.counter.popen.send_signal(signal.SIGTERM)
    until(lambda: _refuses(run), "a data plane that is closed")
    for _ in range(2):  # each takes longer than a process that waits for nothing
        answers = {member["participant"]: member["error"] for member in run("explain", "--json").json["members"]}
        assert answers["resources/counter"] == ""
    run.encode()
    published = ended(creating)
    assert (published.code, published.json["checkpoint"]["stage"]) == (0, "PUBLISHED")
    assert published.json["checkpoint"]["episodes"] == 1
    assert quickly(run.counter.popen) == -signal.SIGTERM


def test_a_cut_that_is_not_stored_in_time_is_dropped_and_its_round_fails_at_once(
    processes: Processes, tmp_path: Path
) -> None:
    """X24, C05: the other gates are open."""
    run = slow_run(processes, tmp_path, grace="0.3")
    creating = run.creating("step-1")
    until(lambda: run.stage("step-1") == "UPLOADING", "the cut")
    began = time.monotonic()
    run.counter.popen.send_signal(signal.SIGTERM)
    failed: Ran = ended(creating)
    assert time.monotonic() - began < SOON
    assert (failed.code, failed.error["reason"]) == (1, "PARTICIPANT_LOST")
    assert "resources/counter" in failed.error["message"]
    run.encode()
    assert quickly(run.counter.popen) == -signal.SIGTERM


def _refuses(run: Run) -> bool:
    connection = http.client.HTTPConnection(run.counter.ready["http"].removeprefix("http://"), timeout=SOON)
    try:
        connection.connect()
    except ConnectionError:
        return True
    finally:
        connection.close()
    return False


def test_a_process_that_cannot_end_by_itself_is_ended() -> None:
    """L09: as serve is whose disk does not answer."""
    code = "import threading; from gymckpt.cli.serve import _exit_after; _exit_after(0.1); threading.Event().wait()"
    stuck = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=LONGEST_COMMAND, check=False)
    assert stuck.returncode == 3
