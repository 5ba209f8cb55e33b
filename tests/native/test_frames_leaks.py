"""Calls leave nothing behind: no Python object, no memory block, nothing of XLA's.

`make sanitize` has Python allocate with malloc, so that LeakSanitizer sees what is left; blocks are
counted without it only.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.native.frames import INT4, INT32, Buffer, Target, call, native, runtime

ROUNDS, CALLS = 40, 20
X = Buffer.of(np.arange(600, dtype=np.float32))
Y = Buffer.result((600,))
SIZE = Buffer(INT32, [], np.int32(7).tobytes())
BYTES = Buffer.of(np.zeros(600, np.int8))


def fail(*_: Any) -> None:
    raise KeyError("a text", object())


TARGETS = {
    "same": Target(lambda x: x),
    "reversed": Target(lambda x: x[::-1]),
    "fails": Target(fail),
    "object": Target(lambda x: np.array([None, 1])),
}


def refuse() -> None:
    target = TARGETS["same"]
    with pytest.raises(ValueError, match="registered already"):
        runtime.register(target, str(id(target)))


def calls(
    name: str, operands: Sequence[Buffer] = (X,), results: Sequence[Buffer] = (Y,), **how: Any
) -> Callable[[bool], Any]:
    return lambda foreign: call(TARGETS[name], operands, results, foreign=foreign, **how)


CASES: dict[str, Callable[[bool], Any]] = {
    "good": calls("same"),
    "strided": calls("reversed"),
    "bounded": calls("same", [X, SIZE], [Y, SIZE], dynamic_operands=[0, 0], dynamic_results=[0, 0]),
    "int4": calls(
        "same", [BYTES], [BYTES], sub_byte_operands=[0, INT4], sub_byte_results=[0, INT4]
    ),
    "raises": calls("fails"),
    "wrong dtype": calls("same", [BYTES]),
    "wrong count": calls("same", [X], [Y, Y]),
    "object": calls("object"),
    "unknown dtype": calls("same", [X, Buffer(63, [1], b" ")]),
    "gone": lambda foreign: call(0, [X], [Y], foreign=foreign),
    "malformed": calls("same", sub_byte_operands=[9, 9]),
    "attributes": calls("same", said=[]),
    "registry": lambda foreign: runtime.find(str(id(Target(lambda: None)))),
    "duplicate name": lambda foreign: refuse(),
    "dtype": lambda foreign: runtime.set_dtype(INT4, np.dtype(ml_dtypes.int4), "int4"),
}


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("case", CASES)
def test_memory_stays_flat(case: str, foreign: bool) -> None:
    for _ in range(ROUNDS):
        before = sys.getallocatedblocks()
        for _ in range(CALLS):
            CASES[case](foreign)
        gc.collect()
        growth = sys.getallocatedblocks() - before
        # Caches grow for some rounds; what each call keeps would grow in all of them.
        if growth < CALLS // 2:
            break
    assert growth < CALLS // 2
    assert native.live_objects() == 0
