"""The handler for programs on NVIDIA GPUs, with the driver of one that there is not."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    DTYPES,
    INT4,
    TOKEN_BUFFER,
    Buffer,
    Target,
    call_on_gpu,
    fake_gpu,
    native,
    random_array,
    runtime,
)

SHAPES = [(), (1,), (0,), (3, 0, 2), (2, 3), (1000, 33)]
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


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("code", DTYPES)
def test_every_dtype_goes_in_and_comes_out_bit_by_bit(code: int, foreign: bool) -> None:
    dtype = DTYPES[code]
    seen: list[Any] = []
    target = Target(lambda x: (seen.append(x), x)[1])
    for shape in SHAPES:
        array = random_array(random.Random(0), shape, dtype)
        result = Buffer.result(shape, dtype)
        done = call_on_gpu(target, [Buffer.of(array)], [result], foreign=foreign)
        assert (done.code, done.message) == (0, "")
        assert done.array().tobytes() == array.tobytes() == seen[-1].tobytes()
        assert (seen[-1].dtype, seen[-1].shape) == (dtype, shape)


@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_many_operands_and_results(token: bool) -> None:
    rng = random.Random(0)
    arrays = [random_array(rng, (n, 3), dtype) for n, dtype in enumerate(DTYPES.values())]
    target = Target(lambda *xs: list(reversed(xs)))
    operands = [Buffer.of(array) for array in arrays]
    results = [Buffer.result(array.shape, array.dtype) for array in reversed(arrays)]
    done = call_on_gpu(target, operands, results, token=token)
    assert (done.code, done.message) == (0, "")
    assert done.data == [array.tobytes() for array in reversed(arrays)]


def test_tokens_may_be_anywhere() -> None:
    target = Target(lambda x, y: (y, x))
    operands = [TOKEN_BUFFER, Buffer.of(np.float32(1)), TOKEN_BUFFER, Buffer.of(np.float32(2))]
    results = [Buffer.result(()), TOKEN_BUFFER, Buffer.result(())]
    done = call_on_gpu(target, operands, results, token=True)
    assert (done.code, done.array(0).item(), done.array(2).item()) == (0, 2, 1)


@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_no_operands_and_no_results(token: bool) -> None:
    calls: list[int] = []
    target = Target(lambda: calls.append(1))
    for foreign in (False, True):
        assert call_on_gpu(target, token=token, foreign=foreign).code == 0
    assert len(calls) == 2


def test_a_call_without_operands_waits_for_what_stands_before_it() -> None:
    calls: list[int] = []
    native.fail_cuda("cuStreamSynchronize")
    assert call_on_gpu(Target(lambda: calls.append(1)), token=True).code != 0
    assert calls == []


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_true_sizes_of_operands(size: int) -> None:
    whole = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    seen: list[np.ndarray] = []
    sizes = [Buffer.of(np.int32(size)), Buffer.of(np.int32(1))]
    operands = [Buffer.of(whole), *sizes]
    assert call_on_gpu(Target(seen.append), operands, dynamic_operands=[0, 2, 0, 0]).code == 0
    np.testing.assert_array_equal(seen[0], whole[:1, :, :size])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_true_sizes_of_results(rows: int) -> None:
    array = np.arange(rows * 2, dtype=np.int64).reshape(rows, 2) + 1
    results = [Buffer.result((3, 4), np.int64), *[Buffer.result((), np.int32)] * 2]
    done = call_on_gpu(Target(lambda: array), [], results, dynamic_results=[0, 0, 0, 1])
    assert (done.code, done.array(1).item(), done.array(2).item()) == (0, rows, 2)
    expected = np.zeros((3, 4), np.int64)
    expected[:rows, :2] = array
    np.testing.assert_array_equal(done.array(), expected)


def test_int4_is_int8_to_xla() -> None:
    target = Target(lambda x: (x[::-1], x.dtype == DTYPES[INT4]))
    operand = Buffer.of(np.array([-8, -1, 0, 7], np.int8))
    results = [Buffer.result((4,), np.int8), Buffer.result((), np.bool_)]
    pairs: dict[str, Any] = {"sub_byte_operands": [0, INT4], "sub_byte_results": [0, INT4]}
    done = call_on_gpu(target, [operand], results, **pairs)
    assert (done.code, done.array(0).tolist()) == (0, [7, 0, -1, -8])
    assert done.array(1)


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
    lender = runtime.set_buffer_provider_api(native.buffer_provider())
    try:
        target = Target(function, convention={how: True, "shares_memory": True})
        for _ in range(3):
            done = call_on_gpu(target, [operand], [result])
            assert (done.code, done.message) == (0, "")
            np.testing.assert_array_equal(done.array(), -large)
    finally:
        runtime.set_buffer_provider_api(lender)
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
