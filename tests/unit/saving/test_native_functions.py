"""hostcall._saving.encoding: what processes without Python are told of native code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import msgspec
import numba
import pytest
import tensorflow as tf
from numba import types

import hostcall
from hostcall._saving import encoding, tokens
from hostcall._saving.tokens import Native, SavedFunctionError, Size
from hostcall._tf import token_registry
from tests.support import native_code

FLOATS = ctypes.POINTER(ctypes.c_float)


def native(result: Any, sizes: int = 2) -> Any:
    """A function of one array; what it does is of no account, as nothing calls it."""
    function = native_code.functions()["next_float32"]
    function.argtypes = [FLOATS, FLOATS] + [ctypes.c_int64] * sizes
    function.restype = None
    return hostcall.native(function, result=result)


def recorded(function: Any, shape: Any, result: Any = tf.float32) -> Native:
    """What is recorded of a call with an argument of that shape."""

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
    def program(x: tf.Tensor) -> Any:
        return tf.numpy_function(function, [x], result)

    graph = program.get_concrete_function().graph
    (op,) = (op for op in graph.get_operations() if op.type == "PyFunc")
    spec = token_registry.find_present(op.get_attr("token").decode())
    record = encoding.record_of(spec, encoding.asked_so_far)
    assert record.function is not None
    assert tokens.decode(tokens.encode(record)) == record
    if record.function.native is None:
        raise LookupError(record.function)
    return tokens.decode_native(record.function.native)


def at(dimension: int) -> Size:
    return Size(input=0, dimension=dimension)


SHAPES: dict[str, tuple[Callable[[Any], Any], list[Any], list[Size]]] = {
    "all are known": (lambda x: tf.TensorSpec(x.shape, x.dtype), [4, 3], [Size(4), Size(3)]),
    "of the argument": (lambda x: tf.TensorSpec(x.shape, x.dtype), [None, 3], [at(0), Size(3)]),
    "both": (lambda x: tf.TensorSpec(x.shape[::-1], x.dtype), [None, None], [at(1), at(0)]),
    "a number": (lambda x: tf.TensorSpec([x.shape[0], 7], x.dtype), [None, 7], [at(0), Size(7)]),
    "a scalar": (lambda x: tf.TensorSpec([], x.dtype), [None, None], []),
}


def test_a_shape_that_does_not_depend_on_arguments() -> None:
    for shape in (None, [None], [4]):
        assert recorded(native(tf.TensorSpec([5], tf.float32)), shape).results == [[Size(5)]]


def test_what_a_graph_hopes_for_is_not_what_the_code_writes() -> None:
    half = native(lambda x: tf.TensorSpec([x.shape[0] // 2], x.dtype))
    assert recorded(half, [None], tf.TensorSpec([2], tf.float32)).results is None
    same = native(lambda x: tf.TensorSpec(x.shape, x.dtype))
    assert recorded(same, [None], tf.TensorSpec([2], tf.float32)).results == [[at(0)]]


@pytest.mark.parametrize("case", SHAPES)
def test_sizes_follow_from_sizes(case: str) -> None:
    result, shape, wanted = SHAPES[case]
    assert recorded(native(result), shape).results == [wanted]


UNKNOWN: dict[str, tuple[Callable[[Any], Any], list[Any] | None]] = {
    "half": (lambda x: tf.TensorSpec([x.shape[0] // 2], x.dtype), [None]),
    "one more": (lambda x: tf.TensorSpec([x.shape[0] + 1], x.dtype), [None]),
    "at most": (lambda x: tf.TensorSpec([min(x.shape[0], 100)], x.dtype), [None]),
    "a rank that depends": (lambda x: tf.TensorSpec([1] * (x.shape[0] % 2), x.dtype), [None]),
    "of unknown rank": (lambda x: tf.TensorSpec(x.shape, x.dtype), None),
    "one that does not say": (lambda x: tf.TensorSpec([None], x.dtype), [None]),
    "one that raises": (lambda x: tf.TensorSpec([1 // (x.shape[0] - 5)], x.dtype), [None]),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_sizes_that_only_python_knows(case: str) -> None:
    result, shape = UNKNOWN[case]
    assert recorded(native(result), shape).results is None


def test_where_the_code_is_and_what_it_takes() -> None:
    told = recorded(native(lambda x: x), [2, 3])
    assert told.library == native_code.functions()._name
    assert (told.symbol, told.kind) == ("next_float32", "c")
    assert (told.arguments, told.sizes, told.status) == (4, True, False)
    assert encoding.name_of(told).endswith(".so::next_float32")


def test_code_in_memory_has_no_library() -> None:
    pointer = types.CPointer(types.float32)
    compiled = numba.cfunc(types.void(pointer, pointer))(lambda x, y: None)
    named = hostcall.register(hostcall.native(compiled, result=lambda x: x), "tests::compiled")
    with pytest.raises(LookupError, match="tests::compiled"):
        recorded(named, [])


def test_damage_is_noticed() -> None:
    text = tokens.encode_native(recorded(native(lambda x: x), [2, 3]))
    for position in range(len(text)):
        changed = text[:position] + chr(ord(text[position]) ^ 1) + text[position + 1 :]
        with pytest.raises(ValueError, match="was altered"):
            tokens.decode_native(changed)
    call = tokens.Record(
        id="a", kind="numpy", inputs=1, outputs="float32", function=tokens.Function("m:f")
    )
    function = tokens.Function("m:f", native=changed)
    with pytest.raises(SavedFunctionError, match="native code was altered"):
        tokens.decode(tokens.encode(msgspec.structs.replace(call, function=function)))
