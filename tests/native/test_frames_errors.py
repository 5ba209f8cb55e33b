"""The handler, called with frames made by hand: each failure is an error that tells why, no byte of
a result is written then, and the next call is sound.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    INT4,
    INT32,
    PAIRS,
    UNKNOWN_DTYPES,
    Attribute,
    Buffer,
    Target,
    attributes,
    call,
    native,
)

INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 3, 9, 12, 13

X = Buffer.of(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    yield
    assert native.live_objects() == 0
    done = call(Target(lambda x: -x), [X], [Buffer.result((2, 3))], foreign=True)
    assert (done.code, done.array()[1, 2]) == (0, -5)


@pytest.mark.parametrize("code", UNKNOWN_DTYPES)
def test_dtypes_that_numpy_lacks(code: int) -> None:
    odd = Buffer(code, [4], bytes(4))
    text = f"XLA's element type number {code} has no NumPy dtype"
    call(Target(lambda x: None), [odd]).assert_fails_untouched(UNIMPLEMENTED, text)
    call(Target(lambda: np.zeros(4)), [], [odd]).assert_fails_untouched(UNIMPLEMENTED, text)
    done = call(Target(lambda x: None), [X], sub_byte_operands=[0, code])
    done.assert_fails_untouched(UNIMPLEMENTED, text)
    done = call(Target(lambda: np.zeros(6)), [], [X], sub_byte_results=[0, code])
    done.assert_fails_untouched(UNIMPLEMENTED, text)


@pytest.mark.parametrize("pair", [[2, 0], [0, 2], [-1, 0], [0, -1], [2**40, 0], [0, -(2**63)]])
@pytest.mark.parametrize("side", [0, 1], ids=["operands", "results"])
def test_sizes_of_dimensions_that_are_not_there(side: int, pair: list[int]) -> None:
    buffers = [[X, Buffer.of(np.int32(1))], []]
    sizes: dict[str, Any] = {PAIRS[side]: pair}
    done = call(Target(lambda *x: x), *buffers[:: -1 if side else 1], **sizes)
    done.assert_fails_untouched(INVALID_ARGUMENT, "malformed custom call")


@pytest.mark.parametrize(
    "size",
    [
        Buffer.of(np.int64(1)),
        Buffer.of(np.float32(1)),
        Buffer(INT32, [0], b""),
        Buffer.of(np.zeros([1, 0], np.int32)),
    ],
    ids=["int64", "float32", "empty", "empty of rank 2"],
)
@pytest.mark.parametrize("side", [0, 1], ids=["operands", "results"])
def test_sizes_of_the_wrong_kind(side: int, size: Buffer) -> None:
    buffers = [[X, size], []]
    target = Target(lambda *x: np.zeros([1, 3], np.float32))
    sizes: dict[str, Any] = {PAIRS[side]: [0, 0]}
    done = call(target, *buffers[:: -1 if side else 1], **sizes)
    done.assert_fails_untouched(INVALID_ARGUMENT, "malformed custom call")


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1, -(2**31)])
def test_true_sizes_beyond_the_allocated_ones(size: int) -> None:
    calls: list[Any] = []
    done = call(Target(calls.append), [X, Buffer.of(np.int32(size))], dynamic_operands=[0, 0])
    assert done.code in (INVALID_ARGUMENT, INTERNAL)
    assert not calls


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("pairs", [[0], [0, 0, 0], list(range(9)), [0, 0] * 50])
def test_pairs_that_are_too_many_or_too_few(name: str, pairs: list[int]) -> None:
    named: dict[str, Any] = {name: pairs}
    done = call(Target(lambda x: x), [X], [Buffer.result((2, 3))], **named)
    assert done.code in (INVALID_ARGUMENT, UNIMPLEMENTED)
    assert done.untouched


@pytest.mark.parametrize("name", PAIRS[2:])
@pytest.mark.parametrize("index", [1, -1, 2**62, -(2**63)])
def test_sub_byte_types_of_buffers_that_are_not_there(name: str, index: int) -> None:
    named: dict[str, Any] = {name: [index, INT4]}
    done = call(Target(lambda x: x), [X], [Buffer.result((2, 3))], **named)
    done.assert_fails_untouched(INVALID_ARGUMENT, "malformed custom call")


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("how", ["missing", "other name", "int32", "the other kind", "twice"])
def test_attributes_of_another_kind(how: str, at: int) -> None:
    target = Target(lambda: None)
    said = attributes(target)
    name, code, scalar, values = said.pop(at)
    odd: dict[str, list[Attribute]] = {
        "missing": [],
        "other name": [("x" + name, code, scalar, values)],
        "int32": [(name, INT32, scalar, values)],
        "the other kind": [(name, code, not scalar, [0])],
        "twice": [(name, code, scalar, values)] * 2,
    }
    said[at:at] = odd[how]
    done = call(target, said=said)
    assert done.code == INVALID_ARGUMENT
    assert "ttribute" in done.message or "data type" in done.message


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_other_stages(stage: int) -> None:
    done = call(Target(lambda: None), stage=stage)
    done.assert_fails_untouched(INVALID_ARGUMENT, "Wrong execution stage")


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_callbacks_that_are_gone(foreign: bool) -> None:
    target = Target(lambda: None)
    number = target.id
    assert call(number, foreign=foreign).code == 0
    del target
    for gone in (number, 0, -1, 2**62, -(2**63)):
        done = call(gone, [X], [Buffer.result((2, 3))], foreign=foreign)
        done.assert_fails_untouched(FAILED_PRECONDITION, f"the id {gone} is gone")


def test_more_dimensions_than_numpy_has() -> None:
    many = Buffer(X.code, [1] * 65, bytes(4))
    done = call(Target(lambda x: None), [many])
    done.assert_fails_untouched(INVALID_ARGUMENT, "dimensions")
    done = call(Target(lambda: np.zeros(1, np.float32)), [], [many])
    done.assert_fails_untouched(INVALID_ARGUMENT, "has shape (1,)")


@pytest.mark.parametrize("dims", [[-1], [2, -1], [2**62, 2**62], [2**63 - 1, 2**63 - 1, 2]])
def test_dimensions_that_no_memory_has(dims: list[int]) -> None:
    absurd = Buffer(X.code, dims, bytes(4))
    done = call(Target(lambda x: None), [absurd])
    done.assert_fails_untouched(INVALID_ARGUMENT, "ValueError")
    done = call(Target(lambda: np.zeros(1, np.float32)), [], [absurd])
    done.assert_fails_untouched(INVALID_ARGUMENT, "has shape (1,), but its declared shape is (")


class Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise self.error


# What a callback returns where a float32[2, 3] is declared, and what the error says.
WRONG = {
    "None": (None, "returns 0 values"),
    "too few": ((), "returns 0 values"),
    "too many": ((np.float32(1), np.float32(2)), "returns 2 values"),
    "float64": (np.zeros([2, 3]), "is double, but expects float"),
    "int": (3, "is int64, but expects float"),
    "str": ("text", "is string, but expects float"),
    "bytes": (b"text", "is string, but expects float"),
    "surrogate": ("\udcff", "is string, but expects float"),
    "list of str": ([["a", "b\0", "\udcff"]], "is string, but expects float"),
    "object": (object(), "Unsupported object type object"),
    "dict": ({"a": 1}, "Unsupported object type dict"),
    "None inside": ([[[1.0, None, 2.0]] * 2], "Unsupported object type float"),
    "ragged": ([[[1.0], [1.0, 2.0]]], "rows of different lengths"),
    "deep": ([np.zeros([1] * 64).tolist()], "is double, but expects float"),
    "datetime64": (np.zeros([2, 3], "M8[s]"), "Unsupported numpy data type datetime64[s]"),
    "structured": (np.zeros([2, 3], [("a", "f4")]), "Unsupported numpy data type [('a', '<f4')]"),
    "strings": (np.zeros([2, 3], np.dtypes.StringDType()), "Unsupported numpy data type"),
    "void": (np.zeros([2, 3], "V4"), "Unsupported numpy data type |V4"),
    "smaller": (np.zeros([2, 2], np.float32), "has shape (2, 2)"),
    "larger": (np.zeros([2, 4], np.float32), "has shape (2, 4)"),
    "other rank": (np.zeros([6], np.float32), "has shape (6,)"),
    "huge": (np.broadcast_to(np.float32(0), (2**40, 2**20)), "has shape (1099511627776, 1048576)"),
    "raises": (Raises(KeyError("raised here")), "KeyError: 'raised here'"),
    "interrupted": (Raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "exits": (Raises(SystemExit(3)), "SystemExit: 3"),
}


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
@pytest.mark.parametrize("name", WRONG)
def test_results_of_the_wrong_kind(name: str, foreign: bool) -> None:
    value, text = WRONG[name]
    target = Target(lambda x: value)
    done = call(target, [X], [Buffer.result((2, 3))], foreign=foreign)
    done.assert_fails_untouched(done.code or -1, text)


@pytest.mark.parametrize("name", WRONG)
def test_nothing_is_written_if_a_later_result_is_wrong(name: str) -> None:
    right = np.ones([2, 3], np.float32)
    value = WRONG[name][0]
    target = Target(lambda: (right, value, right))
    results = [Buffer.result((2, 3))] * 3
    done = call(target, [], [*results, Buffer.result((), np.int32)], dynamic_results=[0, 0])
    done.assert_fails_untouched(done.code or -1)
