"""csrc/tensorflow/where.cc: its handler, called with frames made by hand."""

import ctypes
from typing import Any

import numpy as np
import pytest

from hostcall_runtime import _library
from tests.support.native.frames import Buffer, Outcome, call

MASK = np.array([[True, False, True], [False, True, True]])


@pytest.fixture(scope="module")
def handler() -> Any:
    library = ctypes.CDLL(_library.load("hostcall._tensorflow").__file__)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    address = ctypes.cast(library.HostcallWhereHandler, ctypes.c_void_p)
    return new(address, b"xla._CUSTOM_CALL_TARGET", None)


def places(handler: Any, *sizes: int) -> Outcome:
    operands = [Buffer.of(MASK), *(Buffer.of(np.int32(size)) for size in sizes)]
    results = [Buffer.result((MASK.size, MASK.ndim), np.int64), Buffer.result((), np.int32)]
    return call(0, operands, results, entry=handler, said=[])


@pytest.mark.parametrize("rows", range(3))
@pytest.mark.parametrize("columns", range(4))
def test_places_within_the_true_sizes(handler: Any, rows: int, columns: int) -> None:
    expected = np.argwhere(MASK[:rows, :columns])
    zeros = np.zeros((MASK.size - len(expected), 2), np.int64)
    places(handler, rows, columns).assert_returned(
        np.concatenate([expected, zeros]), np.int32(len(expected))
    )


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (-1, 3), (2, -1)])
def test_a_size_that_xla_has_computed_wrong_is_an_error(
    handler: Any, sizes: tuple[int, int]
) -> None:
    done = places(handler, *sizes)
    assert done.code == 13
    wrong = next(n for n, most in zip(sizes, MASK.shape, strict=True) if not 0 <= n <= most)
    assert f"an operand of tf.where has size {wrong} in a dimension" in done.message
