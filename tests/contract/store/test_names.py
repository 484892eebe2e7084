"""Names: what every implementation of the store must hold."""

from __future__ import annotations

import asyncio
import os
import string
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymckpt.core.manifest import Decision
from gymckpt.core.names import epoch_name
from gymckpt.errors import GymckptError, InvalidField, MissingBlobs, NameNotFound, StaleEpoch
from gymckpt.rpc import codec
from gymckpt.store import ArtifactStore, LocalStore, MemoryStore
from tests.contract.store.checkpoints import checkpoint
from tests.contract.store.conftest import Subject

ABORTED = codec.encode_decision(Decision(None, "by a test"))


async def names_in(store: ArtifactStore, prefix: str = "") -> list[str]:
    return [entry.name for entry in await store.list_names(prefix)]


async def test_a_name_is_created_once_and_never_changes(store: ArtifactStore) -> None:
    """C40."""
    assert await store.put_name("intents/c1", b"first") == b"first"
    assert await store.put_name("intents/c1", b"second") == b"first"
    assert await store.get_name("intents/c1") == b"first"


async def test_an_empty_value_is_a_value(store: ArtifactStore) -> None:
    assert await store.put_name("deleted/c1", b"") == b""
    assert await store.get_name("deleted/c1") == b""


async def test_of_many_writers_of_one_name_exactly_one_wins(store: ArtifactStore) -> None:
    """C40."""
    held = await asyncio.gather(*(store.put_name("pins/c1/x", f"{number}".encode()) for number in range(20)))
    assert len(set(held)) == 1
    assert await store.get_name("pins/c1/x") == held[0]


async def test_a_name_may_go_on_where_another_ends(store: ArtifactStore) -> None:
    for name in ("a", "a/b", "a/b/c", "a.b", "a-b", "a/b.c"):
        await store.put_name(name, name.encode())
    assert await names_in(store) == ["a", "a-b", "a.b", "a/b", "a/b.c", "a/b/c"]
    assert await names_in(store, "a") == ["a", "a/b", "a/b.c", "a/b/c"]
    assert await names_in(store, "a/b") == ["a/b", "a/b/c"]
    assert await names_in(store, "b") == []


async def test_a_list_is_told_in_pages_of_any_size(store: ArtifactStore) -> None:
    names = [f"floors/x/{number:05d}" for number in range(25)]
    for name in reversed(names):
        await store.put_name(name, name.encode())
    await store.put_name("floors-of-others", b"")
    paged: list[str] = []
    while page := await store.list_names("floors", after=paged[-1] if paged else "", limit=7):
        assert len(page) <= 7
        assert all(entry.value == entry.name.encode() for entry in page)
        paged.extend(entry.name for entry in page)
    assert paged == names


async def test_a_list_holds_values_of_many_megabytes(store: ArtifactStore) -> None:
    for number in range(4):
        await store.put_name(f"floors/x/{number}", bytes([number]) * (5 * 2**20))
    assert [entry.value[:1] for entry in await store.list_names("floors")] == [bytes([number]) for number in range(4)]


async def test_names_that_may_go_are_deleted_and_others_are_not(store: ArtifactStore) -> None:
    for name in ("members/a/b", "pins/a/b", "floors/a/b"):
        await store.put_name(name, b"x")
        await store.delete_name(name)
        await store.delete_name(name)
        with pytest.raises(NameNotFound, match=name):
            await store.get_name(name)
        assert await store.put_name(name, b"new") == b"new"
    await store.put_name("decisions/c1", ABORTED)
    for name in ("decisions/c1", "epochs/00000000000000000001", "intents/c1", "deleted/c1", "members", "memberships/x"):
        with pytest.raises(InvalidField) as refused:
            await store.delete_name(name)
        assert refused.value.field == "name"
    assert await store.get_name("decisions/c1") == ABORTED


async def test_a_name_that_does_not_exist_is_not_found_by_name(store: ArtifactStore) -> None:
    with pytest.raises(NameNotFound, match="intents/none"):
        await store.get_name("intents/none")


async def test_an_older_epoch_is_refused_everywhere(store: ArtifactStore) -> None:
    """X06."""
    await store.put_name(epoch_name(1), b"", epoch=1)
    await store.put_name("pins/c1/a", b"", epoch=1)
    await store.put_name(epoch_name(2), b"", epoch=2)
    for changing in (
        store.put_name("intents/c2", b"", epoch=1),
        store.put_name("decisions/c1", ABORTED, epoch=1),
        store.put_name("pins/c1/a", b"", epoch=1),
        store.delete_name("pins/c1/a", epoch=1),
    ):
        with pytest.raises(StaleEpoch, match="epoch 1 is over, epoch 2 exists"):
            await changing
    assert await names_in(store) == [epoch_name(1), epoch_name(2), "pins/c1/a"]
    assert await store.put_name("intents/c2", b"new", epoch=2) == b"new"
    assert await store.put_name("intents/c3", b"anyone") == b"anyone"


async def test_an_epoch_has_one_owner(store: ArtifactStore) -> None:
    """X06: the value tells the winner, whoever asks."""
    held = await asyncio.gather(*(store.put_name(epoch_name(7), f"{number}".encode()) for number in range(10)))
    assert len(set(held)) == 1


async def test_publish_and_abort_race_and_exactly_one_is_decided(store: ArtifactStore) -> None:
    """X25: both are told the same."""
    for number in range(8):
        made = checkpoint(f"c{number}")
        await store.write(list(made.blobs.values()))
        tries = [made.decision, ABORTED] if number % 2 else [ABORTED, made.decision]
        told = await asyncio.gather(*(store.put_name(f"decisions/c{number}", value) for value in tries * 3))
        assert len(set(told)) == 1
        assert told[0] in tries
        assert await store.get_name(f"decisions/c{number}") == told[0]


async def test_nothing_is_published_after_an_abort_was_answered(store: ArtifactStore) -> None:
    """X25."""
    made = checkpoint()
    await store.write(list(made.blobs.values()))
    assert await store.put_name("decisions/c1", ABORTED) == ABORTED
    assert await store.put_name("decisions/c1", made.decision) == ABORTED


@pytest.mark.parametrize("lacking", ["manifest", "participant", "session r2", "part r3", "shared", "large", "chunks"])
async def test_a_manifest_that_lacks_a_blob_is_refused_and_the_blob_is_listed(
    store: ArtifactStore, lacking: str
) -> None:
    """X05, C18: a refused decision leaves no name."""
    made = checkpoint(large=bytes(3 * 2**20))
    await store.write([blob for what, blob in made.blobs.items() if what != lacking])
    with pytest.raises(MissingBlobs) as refused:
        await store.put_name("decisions/c1", made.decision)
    assert refused.value.digests == [str(made.digest(lacking))]
    assert await names_in(store) == []
    await store.write([made.blobs[lacking]])
    assert await store.put_name("decisions/c1", made.decision) == made.decision


async def test_a_manifest_that_needs_a_damaged_blob_is_refused(subject: Subject) -> None:
    """X05, X08, C10."""
    made = checkpoint()
    await subject.store.write(list(made.blobs.values()))
    subject.damage(made.digest("session r1"))
    with pytest.raises(MissingBlobs) as refused:
        await subject.store.put_name("decisions/c1", made.decision)
    assert refused.value.digests == [str(made.digest("session r1"))]


async def test_what_a_restore_decides_needs_no_blob(store: ArtifactStore) -> None:
    made = checkpoint()
    assert await store.put_name("decisions/restore-x", made.decision) == made.decision


@pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\x0a\x00", b"garbage"])
async def test_a_decision_that_is_none_is_refused(store: ArtifactStore, value: bytes) -> None:
    """X20."""
    with pytest.raises(InvalidField) as refused:
        await store.put_name("decisions/c1", value)
    assert refused.value.field == "value"
    assert await names_in(store) == []


BAD_NAMES = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/..",
    "a/.b",
    "-a",
    "a b",
    "a\\b",
    "a\0b",
    "a@",
    "a\n",
    "ä",
    "a/b/c/d/e/f/g/h/i",
    "a" * 161,
    "/".join(["a" * 150] * 4),
    "epochs/1",
    "epochs/x",
    "~root",
    "%2e%2e/a",
]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_name_that_is_none_is_refused_in_every_method(store: ArtifactStore, name: str) -> None:
    """X20, X21."""
    for asking in (store.put_name(name, b""), store.get_name(name), store.delete_name(name)):
        with pytest.raises(InvalidField) as refused:
            await asking
        assert refused.value.field == "name"
    if name != "":
        with pytest.raises(InvalidField) as refused:
            await store.list_names(name)
        assert refused.value.field == "prefix"
    assert await names_in(store) == []


SEGMENT = st.text(string.ascii_letters + string.digits + "._-/\\\0 @~:%\n", max_size=12)


def places_of_files(directory: Path, root: Path) -> set[str]:
    """First segments, below `root`, of all files in `directory`."""
    return {os.path.relpath(path, root).split("/")[0] for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[tuple[LocalStore, MemoryStore]]:
    async with await LocalStore.open(tmp_path / "deep" / "store") as local:
        yield local, MemoryStore()


@given(name=st.lists(st.sampled_from(["..", ".", "", "a", "b.c", "members"]) | SEGMENT, max_size=9).map("/".join))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_the_name_nothing_leaves_the_store(
    beside: tuple[LocalStore, MemoryStore], tmp_path: Path, name: str
) -> None:
    """X21: a name is refused or stored as in the reference, and no file appears outside of the directory of names."""
    outcomes = []
    for store in beside:
        try:
            outcomes.append(repr(await store.put_name(name, b"v")))
        except GymckptError as refused:
            outcomes.append(type(refused).__name__)
    assert outcomes[0] == outcomes[1]
    assert places_of_files(tmp_path, tmp_path / "deep" / "store") <= {"lock", "names.v1"}
    assert await names_in(beside[0]) == await names_in(beside[1])
