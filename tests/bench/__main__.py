"""`make bench`: what the hot paths cost, each as a ratio to a baseline measured in the same run. A table, and build/bench.json.

Times are medians. Two machines give different times; the ratios are what may be compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from gymckpt.core.ids import Fence
from gymckpt.core.transitions import Decided, Prepare, Prepared, Request, Resume, Snapshot, Transition, Upload
from gymckpt.participant import Call, Episode, MappingState, ResourcesParticipant
from gymckpt.store import LocalStore, StoreClient, serve_store
from tests.bench.live_calls import live_calls, p99

MIB = 2**20
OUT = Path("build/bench.json")


@dataclass(frozen=True)
class Measured:
    """One figure: `value` in `unit`, `ratio` = value / the baseline's, which `against` names."""

    name: str
    value: float
    unit: str
    ratio: float
    against: str


async def median(times: int, work: Callable[[int], Awaitable[None]]) -> float:
    """Seconds that `work(round)` takes."""
    took = []
    for at in range(times):
        began = time.perf_counter()
        await work(at)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


async def store_paths(directory: Path) -> list[Measured]:
    """One large blob and many small ones over a socket into a directory, against a plain file that is written and synced."""
    size, rounds, small = 64 * MIB, 3, 5_000
    store = await LocalStore.open(directory / "store")
    server = await serve_store(store)
    client = StoreClient(server.address)

    async def plain(at: int) -> None:
        def write() -> None:
            with (directory / f"plain{at}").open("wb") as file:
                file.write(os.urandom(size))
                os.fsync(file.fileno())

        await asyncio.to_thread(write)

    async def large(_: int) -> None:
        await client.write([os.urandom(size)])

    async def many(_: int) -> None:
        await client.write([os.urandom(1024) for _ in range(small)])

    async def read_back(_: int) -> None:
        await client.read(digests)

    baseline = await median(rounds, plain)
    wrote = await median(rounds, large)
    batch = await median(rounds, many)
    digests = await client.write([os.urandom(size)])
    read = await median(rounds, read_back)
    await client.close()
    await server.stop()
    await store.close()
    return [
        Measured("plain file, 64 MiB, synced", size / baseline / 1e6, "MB/s", 1.0, "itself"),
        Measured("verified write over gRPC, 64 MiB", size / wrote / 1e6, "MB/s", baseline / wrote, "plain file"),
        Measured("verified read over gRPC, 64 MiB", size / read / 1e6, "MB/s", baseline / read, "plain file"),
        Measured(
            "small blobs of 1 kB, batched, synced",
            small / batch,
            "blobs/s",
            small * 1024 / size * baseline / batch,
            "plain file",
        ),
    ]


async def admission() -> list[Measured]:
    """Letting one call in and out again while the gate is open, against a bare dictionary access."""
    state: dict[str, int] = {"s": 0}
    participant = ResourcesParticipant("counter", state=MappingState(state, schema="counter/1"))
    episode, calls = Episode("r"), 50_000
    participant.sessions.open(episode, "s")
    call = Call("POST", "/increment", episode, "s")

    async def admitted(_: int) -> None:
        for _ in range(calls):
            ticket = participant.enter_now(call)
            assert ticket is not None
            participant.leave(ticket, succeeded=True)

    async def bare(_: int) -> None:
        for _ in range(calls):
            state["s"] += 1

    through, baseline = await median(5, admitted), await median(5, bare)
    return [Measured("admission of one call", through / calls * 1e6, "µs", through / baseline, "a dictionary access")]


async def pauses(directory: Path) -> list[Measured]:
    """Gate closed to gate open, with little and with much state, all of it changed and none of it."""
    found: dict[str, float] = {}
    for label, kilobytes in (("1 kB", 1), ("40 kB", 40)):
        store = await LocalStore.open(directory / f"pause-{kilobytes}")
        mapping = {f"s{n}": {"text": "x" * kilobytes * 1000, "n": n} for n in range(200)}
        participant = ResourcesParticipant("bench", state=MappingState(mapping, schema="bench/1"))
        participant.store, participant.enabled = store, True
        for key in mapping:
            participant.sessions.open(Episode(key), key)
        first, _ = await checkpoint(participant, 1, "")
        found[f"all of 200 sessions of {label} changed"] = first
        await apply(participant, Fence(1, 1, "c1"), Decided(True))
        again = [(await checkpoint(participant, at, "c1"))[0] for at in range(2, 5)]
        found[f"none of 200 sessions of {label} changed"] = statistics.median(again)
        await store.close()
    baseline = found["none of 200 sessions of 1 kB changed"]
    return [
        Measured(f"pause, {name}", took * 1e3, "ms", took / baseline, "none of 1 kB changed")
        for name, took in found.items()
    ]


async def checkpoint(participant: ResourcesParticipant, sequence: int, base: str) -> tuple[float, float]:
    """Seconds of pause and of upload of one checkpoint; the export is ended as undecided work would be."""
    fence = Fence(1, sequence, f"c{sequence}")
    began = time.perf_counter()
    prepared = await apply(participant, fence, Prepare(5.0, 60.0))
    assert isinstance(prepared, Prepared)
    await apply(participant, fence, Snapshot(prepared.closing, 600.0, base))
    await apply(participant, fence, Resume())
    paused = time.perf_counter() - began
    if sequence == 1:
        await apply(participant, fence, Upload())
    else:
        await apply(participant, fence, Decided(False))
    return paused, time.perf_counter() - began - paused


async def uploads(directory: Path) -> list[Measured]:
    """A live tool call while 1,000 sessions are encoded and uploaded, against the same call before."""
    took = await live_calls(directory)
    idle, uploading = p99(took["idle"]), p99(took["uploading"])
    return [
        Measured("tool call, p99, idle", idle * 1e3, "ms", 1.0, "itself"),
        Measured("tool call, p99, 1,000 sessions uploading", uploading * 1e3, "ms", uploading / idle, "idle"),
    ]


async def apply(participant: ResourcesParticipant, fence: Fence, transition: Transition) -> object:
    return (await participant.apply(Request(fence, 1, participant.boot_id, transition))).result


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        print("measuring the store ...", flush=True)
        measured = await store_paths(Path(directory))
        print("measuring admission and pauses ...", flush=True)
        measured += await admission()
        measured += await pauses(Path(directory))
        print("measuring calls beside an upload ...", flush=True)
        measured += await uploads(Path(directory) / "fleet")
    show(measured)


def show(measured: list[Measured]) -> None:
    """The table, and the file."""
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([asdict(entry) for entry in measured], indent=2) + "\n")
    print(f"\n{'what':<44}{'value':>12} {'unit':<8}{'ratio':>8}  against")
    for entry in measured:
        print(f"{entry.name:<44}{entry.value:>12.2f} {entry.unit:<8}{entry.ratio:>8.2f}  {entry.against}")
    print(f"\nwritten to {OUT}")


asyncio.run(main())
