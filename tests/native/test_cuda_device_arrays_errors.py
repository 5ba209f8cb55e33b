"""`memory="device"` in programs on a GPU: results that are not as declared, and failures of the
driver. Each is an error that tells why, and the next call is sound.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import Target, call_on_gpu, fake_gpu, native
from tests.support.native.gpu_arrays import (
    CUDA,
    VALUES,
    ByDlpack,
    ByInterface,
    X,
    Y,
    assert_fails,
    by_dlpack,
    on_gpu,
)

INTERNAL = 13


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        yield


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda: ByDlpack(VALUES.astype(np.int32)), "is int32, but expects float."),
        (lambda: ByInterface(VALUES.astype(np.float64)), "is float64, but expects float."),
        (lambda: ByDlpack(VALUES.T.copy()), "has shape (3, 2), but its declared shape is (2, 3)"),
        (lambda: ByDlpack(VALUES, strides=(1, 2)), "its strides are (1, 2) elements"),
        (lambda: ByInterface(VALUES, strides=(1, 2)), "its strides are (1.0, 2.0) elements"),
        (lambda: ByDlpack(VALUES, number=1), "ByDlpack on CUDA device 1, and the program runs on"),
        (lambda: ByInterface(VALUES, number=1), "does not lie on the device of the program"),
        (lambda: ByDlpack(VALUES, kind=10), "on a device of DLPack's kind 10, number 0"),
        (object, "which has neither __dlpack__ nor __cuda_array_interface__"),
        (lambda: None, "returns 0 values, but expects to see 1 values"),
        (lambda: (ByDlpack(VALUES),) * 2, "returns 2 values, but expects to see 1 values"),
        (lambda: np.zeros((3, 3), np.float32), "has shape (3, 3)"),
        (lambda: "text", "but expects float"),
    ],
)
def test_results_that_are_not_as_declared(returned: Any, text: str) -> None:
    assert_fails(on_gpu(lambda x: returned()), text)


def test_an_address_that_is_no_device_s() -> None:
    class Wrong(ByInterface):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {**super().__cuda_array_interface__, "data": (4096, False)}

    assert_fails(on_gpu(lambda x: Wrong(VALUES)), "does not lie on the device of the program")


def test_errors_of_the_function_and_of_the_library() -> None:
    class Refusing:
        def __dlpack_device__(self) -> tuple[int, int]:
            return CUDA, 0

        def __dlpack__(self, **wanted: Any) -> Any:
            raise RuntimeError("not today")

    done = on_gpu(lambda x: Refusing())
    assert_fails(done, "RuntimeError: not today", code=2)
    assert_fails(on_gpu(lambda x: 1 / 0), "ZeroDivisionError", code=2)


def test_libraries_that_only_have_versioned_capsules() -> None:
    class Versioned(ByDlpack):
        def __dlpack__(self, **wanted: Any) -> Any:
            if "max_version" not in wanted:
                raise BufferError("only to be read")
            return super().__dlpack__(**wanted)

    done = on_gpu(lambda x: Versioned(VALUES))
    assert (done.code, done.array()[1, 2]) == (0, 5)


@pytest.mark.parametrize(
    ("function", "first", "doing", "ran"),
    [
        ("cuCtxGetDevice", 1, "asking for the device of the program", False),
        ("cuStreamSynchronize", 1, "waiting for the device", False),
        ("cuCtxSetCurrent", 1, "giving the thread its context back", False),
        ("cuStreamSynchronize", 2, "waiting for the device", True),
        ("cuMemcpyDtoDAsync_v2", 1, "copying results on the device", True),
        ("cuMemcpyDtoDAsync_v2", 2, "copying results on the device", True),
        ("cuMemcpyHtoDAsync_v2", 1, "copying results to the device", True),
        ("cuStreamSynchronize", 3, "waiting for the device", True),
    ],
)
@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_failures_of_the_driver(
    function: str, first: int, doing: str, ran: bool, foreign: bool
) -> None:
    calls: list[int] = []

    def double(x: Any) -> Any:
        calls.append(1)
        return ByDlpack(by_dlpack(x)), ByInterface(VALUES), VALUES

    target = Target(double, convention={"on_device": True})
    native.fail_cuda(function, first)
    done = call_on_gpu(target, [X], [Y, Y, Y], foreign=foreign)
    assert done.code == INTERNAL
    assert f"hostcall: {doing} for a host callback failed" in done.message
    assert "This is a test." in done.message
    assert bool(calls) == ran
    again = call_on_gpu(target, [X], [Y, Y, Y], foreign=foreign)
    assert (again.code, again.message, again.array(2)[1, 2]) == (0, "", 5)
