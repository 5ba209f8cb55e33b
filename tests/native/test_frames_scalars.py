"""Lone values, which callbacks return for results of rank 0."""

import collections
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import DTYPES, QUANTIZED, Buffer, Target, call

ways = pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
BYTE_DTYPES = sorted(
    {dtype for code, dtype in DTYPES.items() if code not in QUANTIZED and "4" not in dtype.name},
    key=str,
)


class Float(float):
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return np.array(-1.0)


class Float32(np.float32):
    pass


def returned(value: Any, dtype: Any, foreign: bool = False) -> Any:
    """Call a callback that returns the value for a result of rank 0, and return the outcome."""
    return call(Target(lambda: value), [], [Buffer.result((), dtype)], foreign=foreign)


@ways
@pytest.mark.parametrize("dtype", BYTE_DTYPES, ids=str)
def test_scalars_of_numpy(dtype: Any, foreign: bool) -> None:
    for number in (0, 1, 3):
        scalar = np.array(number).astype(dtype)[()]
        done = returned(scalar, dtype, foreign)
        assert (done.code, done.data[0]) == (0, np.asarray(scalar, dtype).tobytes())


@ways
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.1, np.float64),
        (float("nan"), np.float64),
        (-0.0, np.float64),
        (True, np.bool_),
        (False, np.bool_),
        (-3, np.int64),
        (2**63 - 1, np.int64),
        (2**63, np.uint64),
        (1 + 2j, np.complex128),
        (np.float64(0.1), np.float64),
        (Float(0.1), np.float64),
        (Float32(0.5), np.float32),
        (np.array(0.5), np.float64),
        ([0.5], np.float64),
        ((0.5,), np.float64),
    ],
    ids=str,
)
def test_numbers(value: Any, dtype: Any, foreign: bool) -> None:
    done = returned(value, dtype, foreign)
    lone = value[0] if isinstance(value, list | tuple) else value
    assert (done.code, done.data[0]) == (0, np.asarray(lone, dtype).tobytes())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.1, np.float32),
        (True, np.float64),
        (1.0, np.bool_),
        (1, np.bool_),
        (True, np.int64),
        (1, np.float64),
        (1, np.int32),
        (np.float32(1), np.float64),
        (np.int64(1), np.int32),
        (np.bool_(1), np.int8),
        (2**64, np.int64),
        ("1", np.float64),
        (None, np.float64),
    ],
    ids=str,
)
def test_numbers_of_another_dtype(value: Any, dtype: Any) -> None:
    done = returned(value, dtype)
    assert done.code != 0
    assert done.untouched


@pytest.mark.parametrize("value", [np.float32(1), 1.0, True])
def test_a_lone_value_is_no_array(value: Any) -> None:
    for dims in ((1,), (0,), (1, 1)):
        done = call(Target(lambda: value), [], [Buffer.result(dims, np.asarray(value).dtype)])
        assert (done.code, done.untouched) == (3, True)
        assert "has shape ()" in done.message


Pair = collections.namedtuple("Pair", "first second")


@ways
@pytest.mark.parametrize("kind", [list, tuple, lambda pair: Pair(*pair)])
def test_several_values_at_once(kind: Any, foreign: bool) -> None:
    values = kind((np.float32(1.5), np.arange(3)))
    results = [Buffer.result((), np.float32), Buffer.result((3,), np.int64)]
    done = call(Target(lambda: values), [], results, foreign=foreign)
    assert (done.code, done.array(0).item(), done.array(1).tolist()) == (0, 1.5, [0, 1, 2])


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("last", [np.float64(1), np.arange(2), None])
def test_one_of_several_that_does_not_fit(kind: Any, last: Any) -> None:
    results = [Buffer.result((), np.float32), Buffer.result((3,), np.int64)]
    done = call(Target(lambda: kind((np.float32(1.5), last))), [], results)
    assert done.code != 0
    assert done.untouched
