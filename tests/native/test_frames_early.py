"""Calls that go on while their program does: the handlers that begin them and take the results."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raising
from tests.support.native.early_frames import DONE, GATE, HANDLE, START, described, start, take
from tests.support.native.frames import INT64, Buffer, Target, attributes, call, native, runtime
from tests.support.threads import in_threads, meeting

TIMEOUT = 60

X = Buffer.of(np.arange(1000, dtype=np.float32))
Y = Buffer.result((1000,))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert (runtime.count_early_calls(), native.live_objects()) == (0, 0)


def begun(*args: Any, **how: Any) -> int:
    outcome = start(*args, **how)
    outcome.assert_returned()
    return int(outcome.array())


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("runs", [1, 3])  # a call that is known to be short runs at once
def test_results_are_those_of_the_call(foreign: bool, runs: int) -> None:
    target = Target(lambda x: [x + x, np.int32(7)])
    results = [Y, Buffer.result((), np.int32)]
    for _ in range(runs):
        done = take(begun(target, [X], results, foreign=foreign), results, foreign)
        done.assert_returned(2.0 * np.arange(1000, dtype=np.float32), 7)


def test_calls_overlap_and_may_be_taken_in_any_order() -> None:
    target = Target(meeting(5))
    one = Buffer.result(())
    handles = [begun(target, [Buffer.of(np.float32(n))], [one]) for n in range(5)]
    assert [float(take(handle, [one]).array()) for handle in handles[::-1]] == [8, 6, 4, 2, 0]


def test_whoever_takes_results_waits_for_them() -> None:
    go_on = threading.Event()
    target = Target(lambda x: (go_on.wait(TIMEOUT), x)[1])
    handle = begun(target, [X], [Y])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, handle, [Y], foreign=True)
        go_on.set()
        np.testing.assert_array_equal(waiting.result(TIMEOUT).array(), np.arange(1000))


def test_many_threads_keep_their_calls_apart() -> None:
    target = Target(lambda x: x * 2)
    one = Buffer.result(())

    def work(number: int) -> None:
        for i in range(100):
            value = np.float32(100 * number + i)
            handle = begun(target, [Buffer.of(value)], [one], foreign=i % 2 == 0)
            assert float(take(handle, [one]).array()) == 2 * value

    in_threads(8, work)


def test_an_error_is_told_to_who_takes_the_results() -> None:
    target = Target(raising(ValueError("no such sensor")))
    for _ in range(3):
        done = take(begun(target, [X], [Y]), [Y])
        done.assert_fails_untouched(3, "no such sensor")


def test_a_callback_that_is_gone() -> None:
    done = take(begun(12345, [X], [Y]), [Y])
    assert "is gone" in done.message


def test_results_are_taken_once() -> None:
    target = Target(lambda x: x)
    handle = begun(target, [X], [Y])
    assert take(handle, [Y]).code == 0
    take(handle, [Y]).assert_fails_untouched(13, "taken already")


def test_results_of_other_sizes_cannot_be_taken() -> None:
    target = Target(lambda x: x)
    for wrong in ([], [Y, Y], [Buffer.result((999,))], [Buffer.result((1000,), np.float64)]):
        take(begun(target, [X], [Y]), wrong).assert_fails_untouched(3, "malformed")


@pytest.mark.parametrize(
    "results", [[11], [11, -1], [11, 2, 5], [11, 1], [99, 1, 5], [11, 1, -5], [11, 2, 2**62, 8]]
)
def test_results_that_are_described_wrongly(results: list[int]) -> None:
    target = Target(lambda x: x)
    said = attributes(target, results=results)
    outcome = call(target, [X], [HANDLE], entry=START, said=said)
    assert outcome.code != 0
    assert outcome.untouched


@pytest.mark.parametrize("handle", [[], [Y], [Buffer(INT64, (1,), bytes(8))], [HANDLE, HANDLE][:0]])
def test_a_frame_without_a_handle(handle: list[Buffer]) -> None:
    target = Target(lambda x: x)
    said = attributes(target, results=described([Y]))
    assert call(target, [X], handle, entry=START, said=said).code == 3
    assert call(0, handle, [Y], entry=DONE, said=[]).code == 3
    assert call(0, [X], handle, entry=GATE, said=[]).code == 3


def test_a_gate_lets_everything_through() -> None:
    outcome = call(0, [X, HANDLE, Y], [HANDLE], entry=GATE, said=[])
    assert (outcome.code, int(outcome.array())) == (0, 0)


def test_calls_whose_program_has_failed_are_dropped() -> None:
    go_on = threading.Event()
    target = Target(lambda x: (go_on.wait(TIMEOUT), x)[1])
    other = runtime.begin_run()
    begun(target, [X], [Y])
    run = runtime.begin_run()
    begun(target, [X], [Y])
    runtime.end_run(other)
    assert runtime.count_early_calls() == 1  # of the run that is under way
    runtime.end_run(run)
    assert runtime.count_early_calls() == 0
    go_on.set()  # it ends in memory of its own
