"""What the README tells somebody to do at night, done as printed to a fleet that is broken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from gymckpt.coordinator import CheckpointArguments, ResumePolicy
from servers.demo.fleet import Program
from tests.e2e.cli.processes import LONGEST_COMMAND, REPOSITORY, Ran, gymckpt
from tests.e2e.disks import small_store
from tests.e2e.fleets import COORDINATOR, until
from tests.e2e.trouble.run import COUNTER, MEMBERS, Run, assert_rewarded, started_as

pytestmark = pytest.mark.asyncio(loop_scope="module")

README = (REPOSITORY / "gymckpt/cli/README.md").read_text()
STUCK, REFUSED, DAMAGED = "Stuck closed", "Restore refused", "Store damaged, full or unreachable"
DISK = "16m"
SHORT = "timeout 8"  # for commands that get no answer, but time to say why


def block(marker: str) -> str:
    """The commands after `<!-- run: marker -->`."""
    (found,) = re.findall(rf"<!-- run: {re.escape(marker)} -->\n```bash\n(.*?)```", README, re.DOTALL)
    return str(found)


class OnCall(Run):
    """One server of each kind and `gymckpt serve`, and somebody who follows the runbook."""

    def __init__(self, directory: Path, *others: object, **named: bool) -> None:
        super().__init__(directory, *others, **named)  # type: ignore[arg-type]
        self.served = directory / "store"

    async def start_coordinator(self, name: str) -> str:
        listen = f"127.0.0.1:{self._ports.get(name, 0)}"
        serve = (
            "--json",
            "serve",
            "--store",
            str(self.served),
            "--listen",
            listen,
            "--expect",
            ",".join(MEMBERS.values()),
        )
        await self.fleet.start(Program(name, "gymckpt.cli", serve))
        self._ports[name] = self.fleet.port(name)
        return self.fleet.address(name)

    async def restart(self, name: str, module: str) -> None:
        """kill -9, if it still runs, then another program in its place."""
        await self.fleet.kill([name] if name in self.fleet.servers else [])
        self._programs[name] = (module,)
        await self.replace(name)

    async def command(self, *words: str) -> Ran:
        return await asyncio.to_thread(gymckpt, "--coordinator", self._address(), "--json", *words)

    async def refused(self, *words: str) -> tuple[str, str]:
        """Reason of the refusal, and where its next step leads."""
        error = (await self.command(*words)).error
        return error["reason"], error["next"]

    async def follow(self, marker: str, *, soon: bool = False, **variables: str) -> Ran:
        """Runs a block of the README as printed; `soon`: with little patience."""
        script = re.sub(r"timeout \d+", SHORT, block(marker)) if soon else block(marker)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "GYMCKPT_COORDINATOR": self._address(),
            **variables,
        }
        ran = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", script],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_COMMAND,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    async def told(self, words: str) -> None:
        """Returns once this is a trouble that the coordinator explains."""
        last = time.monotonic() + LONGEST_COMMAND
        while True:
            troubles = (await self.client.explain_recovery()).troubles
            if any(words in trouble.why for trouble in troubles):
                return
            assert time.monotonic() < last, f"never told: {words}; troubles: {troubles}"
            await asyncio.sleep(0.05)

    def _address(self) -> str:
        return f"127.0.0.1:{self._ports[COORDINATOR]}"


def attempt_of(rollout: str, said: Ran) -> int:
    """The attempt that a restore says to start."""
    (found,) = re.findall(rf"^  continues as {rollout}\S* -> {rollout}-a(\d+)$", said.stdout, re.MULTILINE)
    return int(found)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the run is; its store is on a small disk of its own when this user may mount one."""
    with small_store(tmp_path_factory.mktemp("run"), DISK) as directory:
        yield directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(directory: Path) -> AsyncIterator[OnCall]:
    """Each test leaves it as it found it, which is what it shows."""
    async with started_as(OnCall, directory) as run_:
        yield run_


def fill(file: Path) -> None:
    """Until there is no room."""
    with file.open("wb", buffering=0) as content, contextlib.suppress(OSError):
        while True:
            content.write(bytes(4096))


async def left_closed(run: OnCall, checkpoint_id: str) -> None:
    arguments = CheckpointArguments(checkpoint_id, resume=ResumePolicy.BY_CALLER, gate_lease=600.0)
    await run.client.checkpoint(arguments)


async def test_gates_that_nobody_opened_are_opened(run: OnCall) -> None:
    """Stuck closed, A. X33, P14."""
    rollout = await run.playing("left")
    await left_closed(run, "left")
    reason, step = await run.refused("checkpoint", "create", "next")
    assert (reason, STUCK in step) == ("CONFLICT", True)
    assert not rollout.done()

    said = await run.follow("open the gates", ID="left")

    assert (said.code, "gates are closed: `gymckpt checkpoint resume left`" in said.stdout) == (0, True)
    await assert_rewarded(rollout)


async def test_work_that_never_ends_is_given_up(run: OnCall) -> None:
    """Stuck closed, A and B, with a checkpoint that is held for it, and a call whose session is in no checkpoint. X16, X28."""
    rollout = await run.playing("endless")
    await run.fleet.kill([COUNTER])
    await run.replace(COUNTER)
    await run.told("does not hold session")
    hold = ("--on-not-ready", "hold", "--prepare-timeout", "1s", "--gate-lease", "10m")
    assert (await run.command("checkpoint", "create", "held", *hold)).code == 5

    opened = await run.follow("open the gates", ID="held")
    given_up = await run.follow("give up an attempt", EPISODE="endless")

    assert (opened.code, "INVALID_PHASE" in opened.stderr, "ABORTED" in opened.stdout) == (0, True, True)
    assert (given_up.code, "retired 1 episode" in given_up.stdout, "blocker" in given_up.stdout) == (0, True, False)
    assert (await rollout).status_code == 409
    await assert_rewarded(run.play("endless", 1))


async def test_a_coordinator_that_waits_for_a_silent_server_serves_once_that_is_killed(run: OnCall) -> None:
    """Stuck closed, C, D and E: both broke while the gates were closed. X24, X27, X35."""
    if shutil.which("ss") is None:
        pytest.skip("the runbook finds processes with ss, which is not here")
    rollout = await run.playing("silent")
    await left_closed(run, "silent")
    os.kill(run.fleet.servers[COUNTER].pid, signal.SIGSTOP)
    await run.fleet.kill([COORDINATOR])
    looked = await run.follow("look")
    assert (looked.code, "Connection refused" in looked.stderr) == (3, True)
    starting = asyncio.create_task(run.coordinate())
    waits = f"waiting for {MEMBERS[COUNTER]} at {run.door(COUNTER)}"
    await until(lambda: waits in run.said(COORDINATOR), "a coordinator that waits")
    looked = await run.follow("look", soon=True)
    assert (looked.code, looked.stdout) == (124, "")
    assert f"the coordinator is starting: it {waits.replace('waiting', 'waits')}" in looked.stderr

    await run.follow("kill what is silent", PORT=run.door(COUNTER).rpartition(":")[2])
    await starting
    await run.fleet.kill([COUNTER])
    await run.replace(COUNTER)
    restored = await run.follow("restore what was lost")

    assert (restored.code, "lost state silent" in restored.stdout) == (0, True)
    await run.assert_goes_on("silent", attempt_of("silent", restored))
    assert (await rollout).status_code == 409


async def test_a_restore_that_is_refused_is_done_in_the_end(run: OnCall) -> None:
    """Restore refused: a server is missing, then of another release; the wrong attempt; the wrong arguments; a start from input. X31, X32, X39, C13."""
    rollout = await run.playing("refused")
    await run.checkpoint("kept")
    restore = ("checkpoint", "restore", "kept", "--restore-id")
    await run.fleet.kill([COUNTER])
    reason, step = await run.refused(*restore, "absent")
    assert (reason, STUCK in step) == ("MEMBER_MISSING", True)
    await run.restart(COUNTER, "tests.e2e.cli.newer_counter")
    reason, step = await run.refused(*restore, "newer")
    assert (reason, REFUSED in step) == ("UNLOADABLE_STATE", True)
    assert not any("has stopped it" in trouble.why for trouble in (await run.client.explain_recovery()).troubles)
    await run.restart(COUNTER, "servers.resources.counter")

    restored = await run.follow("restore again", ID="kept", RESTORE_ID="night")
    attempt = attempt_of("refused", restored)

    stale = await run.play("refused", attempt - 1, continues=True)
    assert (stale.status_code, stale.headers["x-gymckpt-reason"]) == (409, "STALE_ATTEMPT")
    again = await run.follow("restore again", ID="kept", RESTORE_ID="night")
    assert (again.code, attempt_of("refused", again)) == (0, attempt)
    assert (await run.refused(*restore, "night", "--on-unloadable", "restart"))[0] == "ARGUMENT_CONFLICT"
    from_input = await run.play("refused", attempt)
    assert (from_input.status_code, from_input.headers["x-gymckpt-reason"]) == (409, "ALREADY_RESTORED")
    await run.assert_goes_on("refused", attempt)
    assert (await rollout).status_code == 409


async def test_a_damaged_store_is_repaired_from_the_servers_and_an_older_checkpoint_restored(run: OnCall) -> None:
    """Store damaged: every blob that the newest checkpoint brought is flipped, and its manifest deleted. X08, C10."""
    await assert_rewarded(run.play("finished"))  # the model keeps it: every later checkpoint has it from the one before
    rollout = await run.playing("damaged")
    await run.checkpoint("older")
    before = set((run.served / "blobs.v1").rglob("*.*"))
    await run.checkpoint("newer")
    manifest = (await run.client.get_checkpoint("newer")).checkpoint.manifest
    for blob in set((run.served / "blobs.v1").rglob("*.*")) - before:
        if blob.name == str(manifest).replace(":", "."):
            blob.unlink()
        else:
            blob.write_bytes(bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])
    reason, step = await run.refused("checkpoint", "create", "next")
    assert (reason, "--full" in step) == ("CUT_VOID", True)
    reason, step = await run.refused("checkpoint", "restore", "newer")
    assert (reason, DAMAGED in step) == ("BLOB_NOT_FOUND", True)

    repaired = await run.follow("repair", NEW="whole")
    back = await run.follow("go back", DAMAGED="newer", ID="older")

    assert (repaired.code, "checkpoint whole: PUBLISHED" in repaired.stdout) == (4, True)
    named = {line for line in repaired.stdout.splitlines() if line.startswith("  checkpoints: ")}
    assert named - {"  checkpoints: none"} == {"  checkpoints: newer"}
    assert back.code == 0, back.stderr
    assert (await run.command("store", "verify")).code == 0
    await run.assert_goes_on("damaged", attempt_of("damaged", back))
    assert (await rollout).status_code in (200, 409)  # done before it was replaced, or not


async def test_what_runs_goes_on_when_a_restore_from_damage_is_refused(run: OnCall) -> None:
    """Restore refused, then Store damaged: nothing was stopped, so that the rollout ends with its reward as the attempt that it was. X08, X14, X28."""
    rollout = await run.playing("spared")
    before = set((run.served / "blobs.v1").rglob("*.*"))
    await run.checkpoint("spoilt")
    manifest = str((await run.client.get_checkpoint("spoilt")).checkpoint.manifest).replace(":", ".")
    for blob in set((run.served / "blobs.v1").rglob("*.*")) - before:
        if blob.name != manifest:
            blob.write_bytes(bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])

    reason, step = await run.refused("checkpoint", "restore", "spoilt")

    assert (reason, DAMAGED in step) == ("DAMAGED_BLOB", True)
    await assert_rewarded(rollout)
    repaired = await run.follow("repair", NEW="mended")
    assert "checkpoint mended: PUBLISHED" in repaired.stdout
    assert (await run.command("checkpoint", "delete", "spoilt")).code == 0
    assert (await run.command("store", "verify")).code == 0


async def test_a_full_store_moves_to_another_disk(run: OnCall, tmp_path: Path) -> None:
    """Store full. C24, X02."""
    if not run.served.is_mount():
        pytest.skip("a small disk for the store could not be mounted; run as a user who may mount a tmpfs")
    rollout = await run.playing("full")
    fill(run.served / "filler")
    reason, step = await run.refused("checkpoint", "create", "full")
    assert (reason, DAMAGED in step) == ("STORE_FULL", True)
    await run.fleet.stop([COORDINATOR])

    moved = await run.follow("move to a bigger disk", STORE=str(run.served), BIGGER=str(tmp_path / "bigger"))

    assert (moved.code, moved.stdout.endswith("no damage\n")) == (0, True)
    run.served = tmp_path / "bigger"
    await run.coordinate()
    await assert_rewarded(rollout)
    await run.checkpoint("full")
