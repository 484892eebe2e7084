"""The execution log."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from gymckpt.participant import Call, Episode
from servers.execution_log import ExecutionLog, digest_of, read_log

CALL = Call("POST", "/add", Episode("r", 2), session="s", request_id="c")


def record_many(file: Path, server: str, count: int) -> None:
    log = ExecutionLog(server, file)
    for number in range(count):
        log.record(CALL, "add", {"number": number, "padding": "x" * 500})


def test_a_line_names_the_call_and_the_digest_of_its_arguments(tmp_path: Path) -> None:
    log = ExecutionLog("counter", tmp_path / "log")
    log.record(CALL, "add", {"count": 1})
    log.record(Call("POST", "/get"), "get", {})
    first, second = read_log(tmp_path / "log")
    assert first == {
        "server": "counter",
        "pid": os.getpid(),
        "rollout": "r",
        "attempt": 2,
        "session": "s",
        "call_id": "c",
        "what": "add",
        "arguments": digest_of({"count": 1}),
    }
    assert (second["rollout"], second["attempt"], second["session"], second["call_id"]) == (None, None, None, None)


def test_equal_arguments_have_equal_digests_whatever_the_order_of_their_keys() -> None:
    assert digest_of({"a": 1, "b": "é"}) == digest_of({"b": "é", "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


def test_several_processes_append_to_one_log_without_mixing_lines(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=record_many, args=(tmp_path / "log", str(n), 200)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = read_log(tmp_path / "log")
    assert {server: sum(line["server"] == server for line in lines) for server in "012"} == dict.fromkeys("012", 200)


def test_a_log_outlives_the_server_and_is_continued_by_the_next(tmp_path: Path) -> None:
    record_many(tmp_path / "log", "before", 1)
    record_many(tmp_path / "log", "after", 1)
    assert [line["server"] for line in read_log(tmp_path / "log")] == ["before", "after"]


def test_without_a_file_nothing_is_recorded(tmp_path: Path) -> None:
    ExecutionLog("counter").record(CALL, "add", {})
    assert read_log(tmp_path / "log") == []


def test_a_line_that_is_just_being_written_is_left_out(tmp_path: Path) -> None:
    log = ExecutionLog("counter", tmp_path / "log")
    log.record(CALL, "add", {})
    with (tmp_path / "log").open("a") as written:
        written.write('{"server": "coun')
    assert [line["server"] for line in read_log(tmp_path / "log")] == ["counter"]


def test_what_else_is_noted_of_a_call_stands_in_its_line(tmp_path: Path) -> None:
    log = ExecutionLog("counter", tmp_path / "log")
    log.record(CALL, "verify", {}, tables="5f")
    assert log.on
    assert read_log(tmp_path / "log")[0]["tables"] == "5f"
    assert not ExecutionLog("counter").on
