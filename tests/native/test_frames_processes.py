"""Joint calls in programs for several processes: reports, and calls of other processes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raising
from tests.support.native.frames import (
    INT64,
    Buffer,
    Outcome,
    Target,
    attributes,
    call,
    native,
    runtime,
)

JOINT, REPORTED = (runtime.handlers()[f"hostcall_{name}"] for name in ("joint", "reported"))
SIZE = 512
X = np.arange(100, dtype=np.float32)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert native.live_objects() == 0


def meet(target: Target, shards: list[int], process: int = 3, run: int = 200) -> list[Outcome]:
    """Devices of a process make a call for these shards; -1 for one of another process."""
    here = len({shard for shard in shards if shard >= 0})
    said = attributes(target, {"shards": here, "devices": len(shards), "process": process})

    def come(shard: int) -> Outcome:
        operands = [Buffer.of(np.int32(shard)), Buffer.of(X + shard)]
        results = [Buffer.result(X.shape), Buffer.result((SIZE,), np.uint8)]
        return call(target, operands, results, entry=JOINT, said=said, foreign=True, run=run)

    with ThreadPoolExecutor(len(shards)) as devices:
        return [*devices.map(come, shards)]


def reported(report: Any, process: int, run: int = 201) -> Outcome:
    operands, results = [Buffer.of(report)], [Buffer.result((), np.int32)]
    said: Any = [("process", INT64, True, [process])]
    return call(0, operands, results, entry=REPORTED, said=said, run=run)


def test_a_process_makes_its_own_calls() -> None:
    for shards in ([0, 0, -1], [1, -1, 0, 1], [-1, -1]):
        seen: list[float] = []
        target = Target(lambda x, seen=seen: [seen.append(float(x[0])), x * 2][1])
        for shard, done in zip(shards, meet(target, shards), strict=True):
            zeros = np.zeros(SIZE, np.uint8)
            done.assert_returned((X + shard) * 2 if shard >= 0 else X * 0, zeros)
        assert sorted(seen) == sorted({float(shard) for shard in shards if shard >= 0})


def test_an_error_is_reported_and_ends_no_program() -> None:
    failing = Target(raising(ValueError("no such thing")))
    for done in meet(failing, [0, 1, -1]):
        assert done.code == 0
        np.testing.assert_array_equal(done.array(), 0 * X)
        ended = reported(done.array(1), process=3)
        assert ended.code == 3
        assert "no such thing" in ended.message


def test_where_there_is_no_error_the_program_goes_on() -> None:
    for process in (0, 3):
        reported(np.zeros(SIZE, np.uint8), process).assert_returned(0)


def test_the_exception_of_another_process_has_no_number_here() -> None:
    mark = "[hostcall error 17: hostcall.last_error(e) returns the exception itself]"
    failing = Target(raising(ValueError(f"first {mark} then {mark} end")))
    (done,) = meet(failing, [0])
    here, there = (reported(done.array(1), process).message for process in (3, 1))
    assert mark in here
    assert "hostcall error" not in there
    where = "[the exception itself is in process 3]"
    assert f"first {where} then {where} end" in there


def test_of_a_long_message_the_middle_is_left_out() -> None:
    (done,) = meet(Target(raising(ValueError(2000 * "-" + "the end"))), [0])
    message = reported(done.array(1), 3).message
    beginning, end = message.split("\n...\n")
    assert "ValueError: ---" in beginning
    # The describer of the sanitizers' tests numbers no exceptions.
    assert "the exception itself]" in end or end.endswith("---the end\n")
    assert len(message) == SIZE - 5


@pytest.mark.parametrize("before", range(4))
def test_a_long_message_is_left_out_between_characters(before: int) -> None:
    (done,) = meet(Target(raising(ValueError(before * "-" + 2000 * "é"))), [0])
    text = bytes(done.array(1))[5:].rstrip(b"\0").decode()
    assert "é\n...\né" in text


def test_the_run_fails_with_the_error_of_a_report() -> None:
    (done,) = meet(Target(raising(ValueError("no such thing"))), [0], run=210)
    assert reported(done.array(1), 3, run=211).code == 3
    called: list[Any] = []
    (later,) = meet(Target(called.append), [0], run=211)
    assert "no such thing" in later.message
    assert called == []


@pytest.mark.parametrize(
    "report", [None, Buffer.result((8,), np.uint8), Buffer.result((SIZE,), np.int32)]
)
def test_malformed_reports(report: Buffer | None) -> None:
    target = Target(np.copy)
    said = attributes(target, {"shards": 1, "devices": 1, "process": 0})
    results = [] if report is None else [report]
    done = call(target, [Buffer.of(np.int32(0))], results, entry=JOINT, said=said, run=220)
    assert "malformed" in done.message
    assert "malformed" in reported(np.zeros(8, np.uint8), 0).message


def test_a_shard_of_no_process_is_malformed() -> None:
    for done in meet(Target(np.copy), [-2]):
        assert "malformed" in done.message
