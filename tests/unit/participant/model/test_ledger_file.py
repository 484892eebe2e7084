"""The file under a ledger: grouped, ordered, and loud when it fails."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gymckpt.core.ids import Episode
from gymckpt.errors import StoreUnavailable
from gymckpt.participant.ledger import CallRow, SqliteLedger
from gymckpt.participant.ledger_file import LedgerFile

INSERT = "INSERT INTO calls (rollout, attempt, call, place, row) VALUES (?, ?, ?, ?, ?)"


async def test_writes_happen_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    file = LedgerFile(str(tmp_path / "ledger"))
    file.write_behind([(INSERT, [("r", 0, "a", 0, b"1")])])
    await asyncio.gather(*(file.write([("UPDATE calls SET place = ?", [(place,)])]) for place in range(1, 600)))
    assert await file.read("SELECT place FROM calls", ()) == [(599,)]
    file.close()


async def test_what_was_answered_is_in_the_file_without_closing_it(tmp_path: Path) -> None:
    """Durable when `write` returns: another process sees it, in a file that syncs every transaction."""
    path = str(tmp_path / "ledger")
    file = LedgerFile(path)
    await file.write([(INSERT, [("r", 0, "a", 0, b"1")])])
    other = sqlite3.connect(path)
    assert other.execute("SELECT call FROM calls").fetchall() == [("a",)]
    other.close()
    assert await file.read("PRAGMA synchronous", ()) == [(2,)]
    assert await file.read("PRAGMA journal_mode", ()) == [("wal",)]
    file.close()


async def test_cancelling_stops_the_waiting_only(tmp_path: Path) -> None:
    file = LedgerFile(str(tmp_path / "ledger"))
    writing = asyncio.ensure_future(file.write([(INSERT, [("r", 0, "a", 0, b"1")])]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await file.read("SELECT call FROM calls", ()) == [("a",)]
    file.close()


async def test_a_failed_write_is_told_to_who_waits_and_leaves_the_file_usable(tmp_path: Path) -> None:
    file = LedgerFile(str(tmp_path / "ledger"))
    await file.write([(INSERT, [("r", 0, "a", 0, b"1")])])
    with pytest.raises(StoreUnavailable, match="could not be written: UNIQUE"):
        await file.write([("DELETE FROM calls", [()]), (INSERT, [("r", 0, "b", 0, b"1")] * 2)])
    assert await file.read("SELECT call FROM calls", ()) == [("a",)]
    file.close()


async def test_a_write_that_failed_behind_is_told_to_everybody_after_it(tmp_path: Path) -> None:
    """Or the file would go on without what memory holds."""
    file = LedgerFile(str(tmp_path / "ledger"))
    file.write_behind([(INSERT, [("r", 0, "a", 0, None)])])
    with pytest.raises(StoreUnavailable):
        await file.read("SELECT 1", ())
    with pytest.raises(StoreUnavailable, match="restart the process"):
        await file.read("SELECT 1", ())
    file.close()


@pytest.mark.parametrize("kind", ["a folder", "another version", "not a database"])
def test_a_file_that_is_no_ledger_of_ours_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger"
    if kind == "a folder":
        path.mkdir()
    elif kind == "another version":
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 7")
        connection.close()
    else:
        path.write_bytes(b"not a database, but long enough to be one" * 100)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreUnavailable, match="ledger"):
        LedgerFile(str(path))
    assert before == (path.read_bytes() if path.is_file() else b"")


async def test_a_call_whose_delivery_could_not_be_written_is_not_delivered() -> None:
    """M04: its response is not sent, so it must not be in a cut."""
    ledger, episode = SqliteLedger(":memory:"), Episode("r")
    await ledger.open(episode)
    await ledger.append(episode, CallRow.of("a", None, episode, {}))
    await ledger._file.write([("DROP TABLE calls", [()])])
    with pytest.raises(StoreUnavailable):
        await ledger.deliver(episode, "a")
    assert (ledger.rows("r"), ledger.last("r"), ledger.freeze("r")) == ([], None, ())
    await ledger.close()
