"""`memory="device"` in programs on a GPU, with the driver of one that there is not: nothing of the
arrays goes through the host, and streams keep their order. Results that are not as declared, and
failures of the driver, are errors that tell why, and the next call is sound.
"""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.native import frames
from tests.support.native.frames import (
    DTYPES,
    INT4,
    Buffer,
    Target,
    call,
    call_on_gpu,
    fake_gpu,
    native,
)
from tests.support.native.gpu_arrays import (
    CUDA,
    DEFAULT_STREAM,
    INVALID_ARGUMENT,
    VALUES,
    ByDlpack,
    ByInterface,
    X,
    Y,
    assert_fails,
    by_dlpack,
    by_interface,
    code_of,
    on_gpu,
)

INTERNAL = 13
READERS = {"dlpack": by_dlpack, "interface": by_interface}
MAKERS = {"dlpack": ByDlpack, "interface": ByInterface}


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        yield
        gc.collect()


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("how", READERS)
def test_arrays_stay_on_the_device(how: str, foreign: bool) -> None:
    native.fail_cuda("cuMemcpyHtoDAsync_v2")
    done = on_gpu(lambda x: MAKERS[how](READERS[how](x) * 2), foreign=foreign)
    done.assert_returned(VALUES * 2)


def test_every_dtype_of_dlpack() -> None:
    tried = 0
    for code, dtype in DTYPES.items():
        try:
            code_of(dtype)
        except KeyError:
            assert dtype.itemsize == 1  # those with less than a byte
            continue
        values = np.arange(6).astype(dtype).reshape(3, 2)
        done = on_gpu(
            lambda x: ByDlpack(by_dlpack(x)[::-1].copy()),
            [Buffer(code, [3, 2], values.tobytes())],
            [Buffer.result((3, 2), dtype)],
        )
        done.assert_returned()
        assert done.array().tobytes() == values[::-1].tobytes()
        tried += 1
    assert tried == 23


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5, 1, 2)])
def test_shapes(shape: Any) -> None:
    values = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    for how in READERS:
        seen: list[Any] = []

        def function(x: Any, seen: list[Any] = seen, how: str = how) -> Any:
            seen.append((x.shape, x.dtype, x.device, x.__dlpack_device__()))
            if values.size == 0:
                return x
            return MAKERS[how](READERS[how](x) + np.int16(1))

        done = on_gpu(function, [Buffer.of(values)], [Buffer.result(shape, np.int16)])
        done.assert_returned(values + 1 if values.size else values)
        assert seen == [(shape, np.dtype(np.int16), "cuda:0", (CUDA, 0))]


def test_the_interface_says_the_stream_of_the_program() -> None:
    seen: list[Any] = []
    asked: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(x.__cuda_array_interface__)
        result = ByDlpack(VALUES)
        asked.append(result.asked)
        return result

    assert on_gpu(function).code == 0
    interface = seen[0]
    assert (interface["shape"], interface["typestr"]) == ((2, 3), "<f4")
    assert interface["strides"] == (12, 4)
    assert asked == [[interface["stream"]]]
    assert interface["stream"] > 2


@pytest.mark.parametrize("how", MAKERS)
def test_results_are_taken_in_the_order_of_their_stream(how: str) -> None:
    stream = native.create_stream()
    done = on_gpu(lambda x: MAKERS[how](by_dlpack(x) + 1, stream=stream))
    done.assert_returned(VALUES + 1)
    # DLPack has the library do it; of the other the runtime has waited for the stream.
    assert native.destroy_stream(stream) == (1 if how == "dlpack" else 0)


def test_results_that_name_no_stream_are_those_of_the_default_one() -> None:
    said = {"stream": None}
    done = on_gpu(lambda x: ByInterface(by_dlpack(x) + 1, stream=DEFAULT_STREAM, said=said))
    done.assert_returned(VALUES + 1)


def test_what_is_on_the_default_stream_is_done_when_a_call_ends() -> None:
    memory = native.DeviceArray(b"old")
    done = on_gpu(lambda x: memory.write_later(b"new", DEFAULT_STREAM), [X], [])
    assert (done.code, memory.read()) == (0, b"new")


def test_arrays_of_numpy_go_to_the_device() -> None:
    def function(x: Any) -> Any:
        return ByDlpack(by_dlpack(x)), by_dlpack(x).T[:, ::-1], 7, [1.0, 2.0]

    results = [Y, Buffer.result((3, 2)), Buffer.result((), np.int64), Buffer.result((2,), float)]
    done = on_gpu(function, [X], results)
    done.assert_returned(VALUES, VALUES.T[:, ::-1], 7, [1.0, 2.0])


def test_arrays_that_are_given_back() -> None:
    done = on_gpu(lambda x, y: [y, x], [X, Buffer.of(-VALUES)], [Y, Y])
    done.assert_returned(-VALUES, VALUES)


@pytest.mark.parametrize("size", [0, 2, 3])
def test_true_sizes(size: int) -> None:
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append((x.shape, x.__cuda_array_interface__["strides"]))
        return ByDlpack(np.full((size, 4), 5, np.int32))

    done = on_gpu(
        function,
        [Buffer.of(whole), Buffer.of(np.int32(size)), Buffer.of(np.int32(3))],
        [Buffer.result((3, 4), np.int32), Buffer.result((), np.int32)],
        dynamic_operands=[0, 0, 0, 1],
        dynamic_results=[0, 0],
    )
    assert (done.code, done.message) == (0, "")
    assert seen == [((size, 3), (16, 4))]
    assert done.array(1).item() == size
    assert (done.array()[:size] == 5).all()


def test_sizes_after_the_first_are_whole_on_a_device() -> None:
    sizes = {"dynamic_results": [0, 0, 0, 1]}
    results = [Buffer.result((3, 4)), *[Buffer.result((), np.int32)] * 2]
    done = on_gpu(lambda: ByDlpack(np.ones((2, 3), np.float32)), [], results, **sizes)
    assert_fails(done, "has shape (2, 3) within (<=3, <=4), and on a device only the first size")
    done = on_gpu(lambda: np.ones((2, 3), np.float32), [], results, **sizes)
    assert (done.code, done.array(1).item(), done.array(2).item()) == (0, 2, 3)


def test_int4_has_no_arrays_on_a_device() -> None:
    operand = Buffer.of(np.zeros(2, np.int8))
    done = on_gpu(lambda x: None, [operand], [], sub_byte_operands=[0, INT4])
    assert_fails(done, "an operand is int4, whose elements take less than a byte")


@pytest.mark.parametrize("how", READERS)
def test_what_keeps_the_memory_after_the_call_is_an_error(how: str) -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(x.__dlpack__() if how == "dlpack" else (x, x.__cuda_array_interface__))
        return ByDlpack(VALUES)

    done = on_gpu(function)
    frames.assert_fails(
        done, INVALID_ARGUMENT, "something still has the memory of an array that it was lent"
    )
    kept.clear()


def test_cycles_that_a_function_leaves_behind() -> None:
    def function(x: Any) -> Any:
        cycle: list[Any] = [x.__dlpack__()]
        cycle.append(cycle)
        return ByDlpack(VALUES)

    assert on_gpu(function).code == 0


def test_numpy_does_not_read_the_device() -> None:
    done = on_gpu(lambda x: np.asarray(x))
    assert done.code != 0
    assert "TypeError: hostcall: NumPy cannot read an array on cuda:0" in done.message
    done = on_gpu(lambda x: np.from_dlpack(x))
    assert done.code != 0


def test_functions_may_turn_to_another_device() -> None:
    for foreign in (False, True):
        done = on_gpu(lambda x: (native.leave_context(), ByDlpack(VALUES))[1], foreign=foreign)
        done.assert_returned(VALUES)


def test_calls_within_calls() -> None:
    def outer(x: Any) -> Any:
        inner = on_gpu(lambda x: ByDlpack(by_dlpack(x) + 1))
        return ByDlpack(by_dlpack(x) + inner.array())

    on_gpu(outer).assert_returned(2 * VALUES + 1)


def test_an_array_on_a_device_is_no_result_of_a_program_on_the_cpu() -> None:
    done = call(Target(lambda x: ByDlpack(VALUES), convention={"on_device": True}), [X], [Y])
    text = "ByDlpack on CUDA device 0, and the program runs on cpu"
    frames.assert_fails(done, INVALID_ARGUMENT, text)


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
    done = on_gpu(lambda x: ByInterface(VALUES, said={"data": (4096, False)}))
    assert_fails(done, "does not lie on the device of the program")


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
    text = f"hostcall: {doing} for a host callback failed"
    frames.assert_fails(done, INTERNAL, text, "This is a test.")
    assert bool(calls) == ran
    again = call_on_gpu(target, [X], [Y, Y, Y], foreign=foreign)
    assert (again.code, again.message, again.array(2)[1, 2]) == (0, "", 5)
