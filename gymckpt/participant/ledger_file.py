"""One SQLite file behind one thread: writes are grouped, so that many calls share one fsync, and they happen in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gymckpt.errors import StoreUnavailable

VERSION = 1  # of the tables, kept in the file as user_version
MAX_GROUP = 256  # jobs that share one transaction

_TABLE = """CREATE TABLE IF NOT EXISTS calls (
    rollout TEXT NOT NULL, attempt INTEGER NOT NULL, call TEXT NOT NULL, place INTEGER, row BLOB NOT NULL, PRIMARY KEY (rollout, call)
)"""

Statements = Sequence[tuple[str, Sequence[Sequence[Any]]]]
"""SQL, each with its rows of values."""


@dataclass(slots=True)
class _Job:
    """Writes, then an optional question. `waited`: somebody is told when it fails."""

    statements: Statements
    question: tuple[str, Sequence[Any]] | None = None
    waited: bool = True
    done: Future[list[tuple[Any, ...]]] = field(default_factory=Future)
    answer: list[tuple[Any, ...]] = field(default_factory=list)


class LedgerFile:
    """Table `calls`; `path` may be `:memory:`. Raises StoreUnavailable when the file cannot be opened, or was written by another version."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._failed: StoreUnavailable | None = None
        try:
            self._connection = _connect(path)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"ledger {path!r} cannot be opened: {error}") from error
        self._thread = threading.Thread(target=self._run, name=f"ledger {path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Carries out what was asked for, then closes the file."""
        self._jobs.put(None)
        self._thread.join()

    async def write(self, statements: Statements) -> None:
        """Durable when this returns; cancelling stops only the waiting. Raises StoreUnavailable."""
        await self._submit(_Job(statements))

    async def read(self, question: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Sees every write asked for before. Raises StoreUnavailable."""
        return await self._submit(_Job((), (question, values)))

    def write_behind(self, statements: Statements) -> None:
        """Done before whatever is asked for next. When it fails, so does everything asked for later: the file no longer holds what is in memory."""
        self._jobs.put(_Job(statements, waited=False))

    async def _submit(self, job: _Job) -> list[tuple[Any, ...]]:
        if self._failed is not None:
            raise self._failed
        self._jobs.put(job)
        return await asyncio.shield(asyncio.wrap_future(job.done))

    def _run(self) -> None:
        while True:
            group, closing = self._next_group()
            try:
                self._carry_out(group)
            except sqlite3.Error as error:
                self._fail(group, error)
            else:
                for job in group:
                    job.done.set_result(job.answer)
            if closing:
                self._connection.close()
                return

    def _next_group(self) -> tuple[list[_Job], bool]:
        """What is waiting, at least one job; and whether the file is to be closed afterwards."""
        group: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == MAX_GROUP or self._jobs.empty():
                return group, False
            job = self._jobs.get()
        return group, True

    def _carry_out(self, group: Iterable[_Job]) -> None:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in group:
                for sql, rows in job.statements:
                    self._connection.executemany(sql, rows)
                if job.question is not None:
                    job.answer = self._connection.execute(*job.question).fetchall()

    def _fail(self, group: Iterable[_Job], error: sqlite3.Error) -> None:
        for job in group:
            failed = StoreUnavailable(f"ledger {self._path!r} could not be written: {error}")
            job.done.set_exception(failed)
            if not job.waited:
                self._failed = StoreUnavailable(
                    f"{failed.message}; it no longer holds what is in memory: restart the process"
                )


def _connect(path: str) -> sqlite3.Connection:
    """Looks before it changes anything."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise StoreUnavailable(
                f"ledger {path!r} has version {version}, this release reads {VERSION}; use another path"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection
