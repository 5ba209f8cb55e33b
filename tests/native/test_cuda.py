"""The handler for programs on NVIDIA GPUs, with the driver of one that there is not: what is not
as on the CPU. What goes in and comes out stands in test_frames.py.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    Buffer,
    Target,
    call_on_gpu,
    fake_gpu,
    native,
    runtime,
)

X = Buffer.of(np.arange(6, dtype=np.float32).reshape(2, 3))
Y = Buffer.result((2, 3))


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        yield


def test_cuda_graphs_must_not_record_it() -> None:
    entry = runtime.cuda_handler()
    assert native.api_version(entry) == runtime.ffi_api_version()
    assert native.traits(entry) == 0


def test_a_call_without_operands_waits_for_what_stands_before_it() -> None:
    calls: list[int] = []
    native.fail_cuda("cuStreamSynchronize")
    assert call_on_gpu(Target(lambda: calls.append(1)), token=True).code != 0
    assert calls == []


@pytest.mark.parametrize("how", ["borrows", "takes_out"])
def test_the_memory_of_a_device_is_not_lent(how: str) -> None:
    kept: list[np.ndarray] = []

    def function(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray | None:
        kept.append(x if out is None else out)
        if out is None:
            return -x
        out[...] = -x
        return None

    large = np.arange(5000, dtype=np.float32)
    operand, result = Buffer.of(large), Buffer.result(large.shape)
    lender = runtime.install(native.host_api())
    try:
        target = Target(function, convention={how: True, "shares_memory": True})
        for _ in range(3):
            done = call_on_gpu(target, [operand], [result])
            assert (done.code, done.message) == (0, "")
            np.testing.assert_array_equal(done.array(), -large)
    finally:
        runtime.install(lender)
    # They are the function's to keep.
    sign = 1 if how == "borrows" else -1
    for array in kept:
        np.testing.assert_array_equal(array, sign * large)


def test_foreign_threads_leave_calls_to_threads_that_last() -> None:
    local, calls = threading.local(), []

    def count() -> None:
        local.calls = getattr(local, "calls", 0) + 1
        calls.append(local.calls)

    target = Target(count)
    for _ in range(100):
        assert call_on_gpu(target, foreign=True).code == 0
    assert max(calls) > 1


def test_callbacks_may_turn_to_another_device() -> None:
    target = Target(lambda x: (native.leave_context(), -x)[1])
    for _ in range(2):
        done = call_on_gpu(target, [X], [Y])
        assert (done.code, done.message, done.array()[1, 2]) == (0, "", -5)


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_callbacks_call_the_handler_again(foreign: bool) -> None:
    def enter(left: Any) -> Any:
        if left == 0:
            return np.int32(0)
        operand = Buffer.of(np.int32(left - 1))
        return call_on_gpu(target, [operand], [result], foreign=foreign).array() + np.int32(1)

    result = Buffer.result((), np.int32)
    target = Target(enter)
    done = call_on_gpu(target, [Buffer.of(np.int32(20))], [result], foreign=foreign)
    assert done.array() == 20


def test_many_threads_get_their_own_results() -> None:
    target = Target(lambda x, n: x * n)
    start = threading.Barrier(8)

    def calls(index: int) -> bool:
        start.wait(60)
        right = []
        for n in range(50):
            factor = np.float32(50 * index + n)
            foreign, token = n % 2 == 0, n % 3 == 0
            done = call_on_gpu(target, [X, Buffer.of(factor)], [Y], foreign=foreign, token=token)
            right.append(done.code == 0 and done.array()[0, 1] == factor)
        return all(right)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(calls, range(8))) == [True] * 8
