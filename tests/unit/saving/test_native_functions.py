"""hostcall._saving.writing: what processes without Python are told of native code and sizes."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import numba
import pytest
import tensorflow as tf
from numba import types

import hostcall
from hostcall._saving import tokens, writing
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
    """Return the native function that is recorded of a call with an argument of that shape."""

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
    def program(x: tf.Tensor) -> Any:
        return tf.numpy_function(function, [x], result)

    graph = program.get_concrete_function().graph
    (op,) = (op for op in graph.get_operations() if op.type == "PyFunc")
    spec = token_registry.find_present(op.get_attr("token").decode())
    record = writing.record_of(spec, writing.asked_so_far)
    assert record.function is not None
    assert tokens.decode(tokens.encode(record)) == record
    if record.function.native is None:
        raise LookupError(record.function)
    return tokens.decode_native(record.function.native)


def at(dimension: int) -> Size:
    return Size(input=0, dimension=dimension)


def test_a_shape_that_does_not_depend_on_arguments() -> None:
    for shape in (None, [None], [4]):
        assert recorded(native(tf.TensorSpec([5], tf.float32)), shape).results == [[Size(5)]]


def test_what_a_graph_hopes_for_is_not_what_the_code_writes() -> None:
    half = native(lambda x: tf.TensorSpec([x.shape[0] // 2], x.dtype))
    assert recorded(half, [None], tf.TensorSpec([2], tf.float32)).results is None
    same = native(lambda x: tf.TensorSpec(x.shape, x.dtype))
    assert recorded(same, [None], tf.TensorSpec([2], tf.float32)).results == [[at(0)]]


def test_where_the_code_is_and_what_it_takes() -> None:
    told = recorded(native(lambda x: x), [2, 3])
    assert told.library == native_code.functions()._name
    assert (told.symbol, told.kind) == ("next_float32", "c")
    assert (told.arguments, told.sizes, told.status) == (4, True, False)
    assert writing.name_of(told).endswith(".so::next_float32")


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


SPEC = tf.TensorSpec([None, None], tf.float32)
FIRST, SECOND = Size(input=0, dimension=0), Size(input=0, dimension=1)


def sizes(shape: Any, *inputs: tf.TensorSpec) -> Any:
    return writing.sizes_of(
        lambda specs: [tf.TensorSpec(shape(*specs[0].shape), tf.float32)], inputs
    )


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (lambda n, m: [n, m], [FIRST, SECOND]),
        (lambda n, m: [m, 3, n], [SECOND, Size(3), FIRST]),
        (lambda n, m: [], []),
        (lambda n, m: [n * 1], [FIRST]),
    ],
)
def test_sizes_of_inputs_and_numbers(shape: Any, found: list[Size]) -> None:
    assert sizes(shape, SPEC) == [found]


@pytest.mark.parametrize(
    "shape",
    [
        lambda n, m: [n + 1],
        lambda n, m: [n // 2],
        lambda n, m: [n * m],
        lambda n, m: [max(n, m)],
        lambda n, m: [min(n, m)],
        lambda n, m: [max(n, 1)],
        lambda n, m: [min(n, 1000)],
        lambda n, m: [n if n % 2 else n + 1],
        lambda n, m: [n] * (1 if n > 50 else 2),
        lambda n, m: [n if m else 0],
        lambda n, m: [None],
        lambda n, m: None,
    ],
)
def test_what_is_no_size_of_an_input_is_not_taken_for_one(shape: Any) -> None:
    assert sizes(shape, SPEC) is None


def test_many_unknown_sizes() -> None:
    spec = tf.TensorSpec([None] * 6, tf.float32)
    assert sizes(lambda *sizes: sizes[:1:-1], spec) == [
        [Size(input=0, dimension=dimension) for dimension in (5, 4, 3, 2)]
    ]


def test_a_known_size_is_a_number() -> None:
    assert sizes(lambda n, m: [m], tf.TensorSpec([None, 4], tf.float32)) == [[Size(4)]]


def test_shape_functions_that_fail_and_inputs_without_a_rank() -> None:
    assert sizes(lambda n, m: [n // 0], SPEC) is None
    assert writing.sizes_of(lambda specs: [], [tf.TensorSpec(None, tf.float32)]) is None
