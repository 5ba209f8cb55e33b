"""The handler for programs on NVIDIA GPUs, with the driver of one that there is not.

What is not as on the CPU; what goes in and comes out stands in test_frames.py. Errors of callbacks
and failures of the driver are errors that tell why, and the next call is sound.
"""

import contextvars
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    DRIVER,
    INT32,
    Buffer,
    Target,
    assert_fails,
    call,
    call_on_gpu,
    fake_gpu,
    native,
    runs,
    runtime,
)

INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, INTERNAL = 3, 8, 9, 13
# A function of the driver, which call of it fails, what that was for, and whether the callback had
# run by then. Where the second copy fails, the first one is under way.
FAILURES = [
    ("cuMemcpyDtoHAsync_v2", 1, "copying operands to the host", False),
    ("cuMemcpyDtoHAsync_v2", 2, "copying operands to the host", False),
    ("cuStreamSynchronize", 1, "waiting for the device", False),
    ("cuCtxGetCurrent", 1, "asking for the context of the thread", False),
    ("cuCtxSetCurrent", 1, "giving the thread its context back", True),
    ("cuMemcpyHtoDAsync_v2", 1, "copying results to the device", True),
    ("cuMemcpyHtoDAsync_v2", 2, "copying results to the device", True),
    ("cuStreamSynchronize", 2, "waiting for the device", True),
]

X = Buffer.of(np.arange(6, dtype=np.float32).reshape(2, 3))
Y = Buffer.result((2, 3))


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        yield


def test_cuda_graphs_must_not_record_it() -> None:
    assert native.traits(runtime.cuda_handler()) == 0


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
            done.assert_returned(-large)
    finally:
        runtime.install(lender)
    # They are the function's to keep.
    sign = 1 if how == "borrows" else -1
    for array in kept:
        np.testing.assert_array_equal(array, sign * large)


SETTING: contextvars.ContextVar[str] = contextvars.ContextVar("SETTING", default="nothing")


@pytest.fixture
def run() -> Iterator[int]:
    """A run whose starter has a setting."""
    number = -7
    contextvars.copy_context().run(lambda: (SETTING.set("the starter's"), runs.begin(number)))
    yield number
    del runs.runs[number]


def test_calls_on_threads_of_the_pool_see_the_settings_of_the_starter(run: int) -> None:
    seen = []
    target = Target(lambda: seen.append(SETTING.get()))
    SETTING.set("this thread's")
    assert call_on_gpu(target, foreign=True, run=run).code == 0
    assert call_on_gpu(target, foreign=False, run=run).code == 0
    assert seen == ["the starter's", "this thread's"]


def test_callbacks_may_turn_to_another_device() -> None:
    target = Target(lambda x: (native.leave_context(), -x)[1])
    for _ in range(2):
        done = call_on_gpu(target, [X], [Y])
        assert (done.code, done.message, done.array()[1, 2]) == (0, "", -5)


def assert_works() -> None:
    done = call_on_gpu(Target(lambda x: -x), [X], [Y])
    assert (done.code, done.message, done.array()[1, 2]) == (0, "", -5)


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_errors_of_the_callback(foreign: bool) -> None:
    def fail(x: Any) -> Any:
        raise ValueError(f"no {x[1, 2]}")

    done = call_on_gpu(Target(fail), [X], [Y], foreign=foreign)
    done.assert_fails_untouched(INVALID_ARGUMENT, "ValueError: no 5.0")
    done = call_on_gpu(Target(lambda x: (-x, x[0])), [X], [Y, Y], foreign=foreign)
    said = "1-th value returned by callback has shape (3,)"
    done.assert_fails_untouched(INVALID_ARGUMENT, said)
    assert_works()


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize(("function", "first", "doing", "ran"), FAILURES)
def test_failures_of_the_driver(
    function: str, first: int, doing: str, ran: bool, foreign: bool
) -> None:
    calls: list[Any] = []
    target = Target(lambda x, y: (calls.append(x), (y, x))[1])
    native.fail_cuda(function, first)
    done = call_on_gpu(target, [X, X], [Y, Y], foreign=foreign)
    assert_fails(
        done,
        INTERNAL,
        f"hostcall: {doing} for a host callback failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): an "
        "illegal memory access was encountered.",
        "This is a test.",
    )
    assert bool(calls) == ran
    assert_works()


def test_a_device_that_never_works_again() -> None:
    native.fail_cuda("cuStreamSynchronize", count=100)
    assert_fails(call_on_gpu(Target(lambda x: -x), [X], [Y]), INTERNAL, "waiting for the device")
    assert native.abandoned_copies() == 1


def test_failures_that_the_driver_does_not_know() -> None:
    native.fail_cuda("cuStreamSynchronize", code=12345)
    done = call_on_gpu(Target(lambda x: -x), [X], [Y])
    assert_fails(done, INTERNAL, "failed with an error without a name (12345): no description.")


def test_failures_of_callbacks_that_are_gone() -> None:
    native.fail_cuda("cuStreamSynchronize")
    assert_fails(call_on_gpu(0, [X], [Y]), INTERNAL, "waiting for the device")
    assert_fails(call_on_gpu(0, [X], [Y]), FAILED_PRECONDITION, "the id 0 is gone")


def test_malformed_calls() -> None:
    done = call_on_gpu(Target(lambda x: x), [X], [Y], sub_byte_operands=[9, 9])
    assert_fails(done, INVALID_ARGUMENT, "malformed custom call", "This is a test.")
    for odd in (Buffer(INT32, [0], b""), Buffer(INT32, [-1], b""), Buffer(INT32, [2**62, 4], b"")):
        done = call_on_gpu(Target(lambda x: x), [X, odd], dynamic_operands=[0, 0])
        assert_fails(done, INVALID_ARGUMENT, "malformed custom call")


def test_dtypes_that_numpy_lacks() -> None:
    odd = Buffer(63, [4], bytes(4))
    text = "XLA's element type number 63 has no NumPy dtype"
    assert_fails(call_on_gpu(Target(lambda x: None), [X, odd]), 12, text)
    assert_fails(call_on_gpu(Target(lambda x: None), [X], [odd]), 12, text)


def test_more_than_the_host_has_memory_for() -> None:
    huge = Buffer(INT32, [2**60], b"1234")
    calls: list[Any] = []
    text = f"no memory for an operand or a result of {2**62} bytes"
    for operands, results in ([X, huge], []), ([X], [huge]):
        done = call_on_gpu(Target(calls.append), operands, results)
        assert_fails(done, RESOURCE_EXHAUSTED, text, "This is a test.")
    assert calls == []


def test_programs_on_the_cpu_have_no_stream() -> None:
    done = call(Target(lambda x: -x), [X], [Y], entry=runtime.cuda_handler())
    assert_fails(done, INVALID_ARGUMENT, "there is no GPU stream")


def test_no_driver(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "libcuda.so.1")
    for loaded in (nowhere, __file__):
        with pytest.raises(RuntimeError, match="cannot be loaded: "):
            runtime.load_cuda_driver(loaded)
        calls: list[Any] = []
        done = call_on_gpu(Target(calls.append), [X])
        assert_fails(
            done,
            FAILED_PRECONDITION,
            f"a program on a GPU calls Python, and its arrays are copied by NVIDIA's driver, but "
            f"{loaded} cannot be loaded: ",
            "Install the driver of the GPU, or run the program on the CPU. This is a test.",
        )
        assert calls == []
    runtime.load_cuda_driver(str(DRIVER))
    assert_works()


def test_a_library_that_is_no_driver() -> None:
    with pytest.raises(RuntimeError, match="is not such a driver: it lacks cuMemcpyDtoHAsync_v2"):
        runtime.load_cuda_driver(runtime.__file__)
    done = call_on_gpu(Target(lambda x: -x), [X], [Y])
    assert_fails(done, FAILED_PRECONDITION, f"{runtime.__file__} is not such a driver")
