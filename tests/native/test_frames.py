"""The handlers, called with frames made by hand: what goes in and comes out."""

import random
import weakref
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    CODES,
    DTYPES,
    INT4,
    INT8,
    TOKEN_BUFFER,
    Buffer,
    Call,
    Target,
    call,
    random_array,
)
from tests.support.native.frames import call_there as call_there

SHAPES = [(), (1,), (0,), (3, 0, 2), (2, 3), (1, 1, 1, 1, 1, 1), (7, 1, 5), (1000, 33)]


def values(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    return random_array(random.Random(0), shape, np.dtype(dtype))


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("code", DTYPES)
def test_every_dtype_goes_in_and_comes_out_bit_by_bit(
    call_there: Call, code: int, foreign: bool
) -> None:
    dtype = DTYPES[code]
    seen: list[Any] = []
    target = Target(lambda x: (seen.append(x), x)[1])
    for shape in SHAPES:
        array = values(shape, dtype)
        result = Buffer.result(shape, dtype)
        done = call_there(target, [Buffer.of(array)], [result], foreign=foreign)
        assert (done.code, done.message) == (0, "")
        assert done.array().tobytes() == array.tobytes() == seen[-1].tobytes()
        assert (seen[-1].dtype, seen[-1].shape) == (dtype, shape)
        assert isinstance(seen[-1], np.ndarray) == (shape != ())


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_many_operands_and_results(call_there: Call, token: bool, foreign: bool) -> None:
    arrays = [values((n, 3), dtype) for n, dtype in enumerate(CODES)]
    target = Target(lambda *xs: list(reversed(xs)))
    operands = [Buffer.of(array) for array in arrays]
    results = [Buffer.result(array.shape, array.dtype) for array in reversed(arrays)]
    done = call_there(target, operands, results, token=token, foreign=foreign)
    assert (done.code, done.message) == (0, "")
    assert done.data == [array.tobytes() for array in reversed(arrays)]


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("convention", [{}, {"borrows": True}, {"takes_out": True}], ids=str)
@pytest.mark.parametrize("count", [*range(1, 15), 40])
def test_any_number_of_operands_and_results(
    count: int, convention: dict[str, bool], foreign: bool
) -> None:
    arrays = [values((n, 3)) for n in range(count)]

    def reverse(*xs: np.ndarray, out: Any = None) -> Any:
        if out is None:
            return list(reversed(xs))
        for to, x in zip(out if count > 1 else [out], reversed(xs), strict=True):
            to[...] = x
        return out

    target = Target(reverse, convention=convention)
    operands = [Buffer.of(array) for array in arrays]
    results = [Buffer.result(array.shape) for array in reversed(arrays)]
    for _ in range(2):
        done = call(target, operands, results, foreign=foreign)
        assert (done.code, done.message) == (0, "")
        assert done.data == [array.tobytes() for array in reversed(arrays)]


@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_no_operands_and_no_results(call_there: Call, token: bool) -> None:
    calls: list[int] = []
    target = Target(lambda: calls.append(1))
    for foreign in (False, True):
        assert call_there(target, token=token, foreign=foreign).code == 0
    assert len(calls) == 2


def test_tokens_may_be_anywhere(call_there: Call) -> None:
    target = Target(lambda x, y: (y, x))
    operands = [TOKEN_BUFFER, Buffer.of(np.float32(1)), TOKEN_BUFFER, Buffer.of(np.float32(2))]
    results = [Buffer.result(()), TOKEN_BUFFER, Buffer.result(())]
    done = call_there(target, operands, results, token=True)
    assert (done.code, done.array(0).item(), done.array(2).item()) == (0, 2, 1)


def test_arrays_are_the_callbacks_own() -> None:
    kept: list[np.ndarray] = []

    def keep(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        x += 1
        return x

    target = Target(keep)
    operand = Buffer.of(np.arange(5, dtype=np.float32))
    for foreign in (False, True, False):
        done = call(target, [operand], [Buffer.result((5,))], foreign=foreign)
        assert done.array().tolist() == [1, 2, 3, 4, 5]
    kept[0][:] = 0
    assert [array.tolist() for array in kept[1:]] == [[1, 2, 3, 4, 5]] * 2


def test_large_arguments_lie_where_the_target_says() -> None:
    made: list[np.ndarray] = []
    seen: list[np.ndarray] = []

    def empty(shape: Any, dtype: Any) -> np.ndarray:
        made.append(np.empty(shape, dtype))
        return made[-1]

    target = Target(lambda *args: seen.extend(args), empty=empty, convention={"allocates": True})
    large, small = values((300, 500)), values((3, 5))
    for foreign in (False, True):
        made.clear()
        seen.clear()
        done = call(target, [Buffer.of(small), Buffer.of(large)], [], foreign=foreign)
        assert done.code == 0
        assert seen[1] is made[0]
        assert len(made) == 1
        np.testing.assert_array_equal(seen[0], small)
        np.testing.assert_array_equal(seen[1], large)


def _raises(shape: Any, dtype: Any) -> Any:
    raise MemoryError("no memory for it")


@pytest.mark.parametrize(
    ("empty", "message"),
    [
        (lambda shape, dtype: None, "not as asked for"),
        (lambda shape, dtype: np.empty(3, dtype), "not as asked for"),
        (lambda shape, dtype: np.empty((500, 300), dtype).T, "not as asked for"),
        (lambda shape, dtype: bytes(600_000), "not as asked for"),
        (_raises, "no memory for it"),
    ],
)
def test_memory_for_arguments_that_is_none(empty: Any, message: str) -> None:
    target = Target(pytest.fail, empty=empty, convention={"allocates": True})
    done = call(target, [Buffer.of(values((300, 500)))], [])
    assert done.code != 0
    assert message in done.message


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_true_sizes_of_operands(call_there: Call, size: int) -> None:
    whole = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    seen: list[np.ndarray] = []
    target = Target(seen.append)
    sizes = [Buffer.of(np.int32(size)), Buffer.of(np.int32(1))]
    pairs = [0, 2, 0, 0]
    assert call_there(target, [Buffer.of(whole), *sizes], [], dynamic_operands=pairs).code == 0
    np.testing.assert_array_equal(seen[0], whole[:1, :, :size])
    assert seen[0].flags.c_contiguous
    assert seen[0].flags.writeable


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("columns", [0, 2, 4])
def test_true_sizes_of_results(call_there: Call, rows: int, columns: int) -> None:
    array = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns) + 1
    target = Target(lambda: array)
    results = [Buffer.result((3, 4), np.int64), *[Buffer.result((), np.int32)] * 2]
    done = call_there(target, [], results, dynamic_results=[0, 0, 0, 1])
    assert (done.code, done.array(1).item(), done.array(2).item()) == (0, rows, columns)
    expected = np.zeros((3, 4), np.int64)
    expected[:rows, :columns] = array
    np.testing.assert_array_equal(done.array(), expected)


def test_int4_is_int8_to_xla(call_there: Call) -> None:
    dtype = DTYPES[INT4]
    target = Target(lambda x: (x[::-1], x.dtype == dtype))
    operand = Buffer.of(np.array([-8, -1, 0, 7], np.int8))
    results = [Buffer.result((4,), np.int8), Buffer.result((), np.bool_)]
    pairs: dict[str, Any] = {"sub_byte_operands": [0, INT4], "sub_byte_results": [0, INT4]}
    done = call_there(target, [operand], results, **pairs)
    assert (done.code, done.array(0).tolist()) == (0, [7, 0, -1, -8])
    assert done.array(1)
    wide = Target(lambda x: (x.astype(np.int8), True))
    failed = call_there(wide, [operand], results, **pairs)
    assert (failed.code, failed.untouched) == (3, True)
    assert "is int8, but expects int4" in failed.message
    assert call_there(wide, [operand], results[:1], sub_byte_results=[0, INT8]).code == 3


class Float(float):
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return np.array(-1.0)


class Float32(np.float32):
    pass


def returned(value: Any, dtype: Any, foreign: bool = False) -> Any:
    return call(Target(lambda: value), [], [Buffer.result((), dtype)], foreign=foreign)


def cases(by_dtype: dict[Any, tuple[Any, ...]]) -> list[tuple[Any, Any]]:
    return [(value, dtype) for dtype, values in by_dtype.items() for value in values]


FITTING: dict[Any, tuple[Any, ...]] = {
    np.float64: (
        0.1,
        float("nan"),
        -0.0,
        np.float64(0.1),
        Float(0.1),
        np.array(0.5),
        [0.5],
        (0.5,),
    ),
    np.float32: (Float32(0.5),),
    np.bool_: (True, False),
    np.int64: (-3, 2**63 - 1),
    np.uint64: (2**63,),
    np.complex128: (1 + 2j,),
}
OTHERS: dict[Any, tuple[Any, ...]] = {
    np.float64: (True, 1, np.float32(1), "1", None),
    np.float32: (0.1,),
    np.bool_: (1.0, 1),
    np.int64: (True, 2**64),
    np.int32: (1, np.int64(1)),
    np.int8: (np.bool_(1),),
}


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize(("value", "dtype"), cases(FITTING), ids=str)
def test_lone_numbers(value: Any, dtype: Any, foreign: bool) -> None:
    done = returned(value, dtype, foreign)
    lone = value[0] if isinstance(value, list | tuple) else value
    assert (done.code, done.data[0]) == (0, np.asarray(lone, dtype).tobytes())


@pytest.mark.parametrize(("value", "dtype"), cases(OTHERS), ids=str)
def test_lone_numbers_of_another_dtype(value: Any, dtype: Any) -> None:
    done = returned(value, dtype)
    assert done.code != 0
    assert done.untouched


def test_results_that_alias_each_other_and_the_operands() -> None:
    target = Target(lambda x, y: (x[::-1], x, x, y[::-1]))
    operands = [Buffer.of(np.arange(n, dtype=np.float32)) for n in (3, 4)]
    results = [Buffer.result((n,)) for n in (3, 3, 3, 4)]
    done = call(target, operands, results)
    assert [done.array(i).tolist() for i in range(4)] == [
        [2, 1, 0],
        [0, 1, 2],
        [0, 1, 2],
        [3, 2, 1, 0],
    ]


def test_the_most_dimensions_that_numpy_has() -> None:
    shape = (1,) * 64
    target = Target(lambda x: x)
    operand = Buffer(CODES[np.dtype(np.float32)], shape, np.float32(5).tobytes())
    done = call(target, [operand], [Buffer.result(shape)])
    assert (done.code, done.array().item()) == (0, 5)


def test_a_function_that_lets_go_of_itself() -> None:
    def function(x: Any) -> Any:
        target.host_function = pytest.fail
        return x

    target = Target(function)
    alive = weakref.ref(function)
    del function
    done = call(target, [Buffer.of(np.float32(5))], [Buffer.result(())])
    assert done.array() == 5
    assert alive() is None
