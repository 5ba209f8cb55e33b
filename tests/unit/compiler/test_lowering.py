"""hostcall._compiler.lowering: from a NodeDef and what XLA knows of its inputs to a custom call."""

import gc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.lowering import lower
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")

INT4 = tf.as_dtype("int4")  # TensorFlow has no public name for it
FLOAT, INT = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum


class Traced:
    """A traced function with one script op; it owns what the op calls."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.concrete = tf.function(function).get_concrete_function(*args)
        (self.node,) = [
            node
            for node in self.concrete.function_def.node_def
            if node.op in ("PyFunc", "PyFuncStateless", "EagerPyFunc")
        ]

    def lower(self, *operands: tuple[int, list[int], list[bool]]) -> Any:
        return lower(self.node.SerializeToString(), operands)


def _static(dtype: int, *dims: int) -> tuple[int, list[int], list[bool]]:
    return dtype, list(dims), [False] * len(dims)


def _attribute(attributes: str, name: str) -> list[int]:
    found = re.search(rf"\b{name} = array<i64(?:: ([^>]*))?>", attributes)
    assert found is not None
    return [int(number) for number in (found[1] or "").split(", ") if number]


def _callback(attributes: str) -> int:
    found = re.search(r"callback = (\d+) : i64", attributes)
    assert found is not None
    return int(found[1])


UNKNOWN = tf.TensorSpec(None, tf.float32)


def test_a_call_of_known_shapes() -> None:
    @hostcall.declare(result=lambda x, y: [x.shape, tf.TensorSpec(y.shape, tf.int32)])
    def both(x: Any, y: Any) -> Any:
        return x, y.astype(np.int32)

    traced = Traced(
        lambda x, y: tf.numpy_function(both, [x, y], [tf.float32, tf.int32]), UNKNOWN, UNKNOWN
    )
    call = traced.lower(_static(FLOAT, 2, 3), _static(FLOAT))
    assert call.target == "hostcall"
    assert call.has_side_effect is True
    assert call.operands == [0, 1]
    assert call.results == [([2, 3], [False, False]), ([], [])]
    for name in ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results"):
        assert _attribute(call.attributes, name) == []


@pytest.mark.parametrize("stateful", [True, False])
def test_only_stateful_calls_have_an_effect(stateful: bool) -> None:
    traced = Traced(
        lambda x: tf.numpy_function(
            lambda x: x, [x], tf.TensorSpec([], tf.float32), stateful=stateful
        ),
        UNKNOWN,
    )
    assert traced.lower(_static(FLOAT)).has_side_effect is stateful


def test_bounded_operands_and_results_are_named_by_index_and_dimension() -> None:
    bounded = hostcall.BoundedSpec([4, 7, 9], tf.float32, dynamic_dims=[0, 2])
    traced = Traced(
        lambda x, y: tf.numpy_function(
            lambda x, y: (x, y), [x, y], [tf.TensorSpec([2], tf.float32), bounded]
        ),
        UNKNOWN,
        UNKNOWN,
    )
    dynamic = (FLOAT, [5, 6], [False, True])
    call = traced.lower(_static(FLOAT, 3), dynamic)
    assert _attribute(call.attributes, "dynamic_operands") == [1, 1]
    assert _attribute(call.attributes, "dynamic_results") == [1, 0, 1, 2]
    assert call.results == [([2], [False]), ([4, 7, 9], [True, False, True])]


def test_looking_twice_gives_the_same_answer_and_registers_once() -> None:
    traced = Traced(
        lambda x: tf.numpy_function(np.sqrt, [x], tf.TensorSpec([2], tf.float32)), UNKNOWN
    )
    first = traced.lower(_static(FLOAT, 2))
    size = _runtime.size()
    assert traced.lower(_static(FLOAT, 2)) == first
    assert _runtime.size() == size


def test_two_ops_of_one_function_have_ids_of_their_own() -> None:
    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(np.sqrt, [x], tf.TensorSpec([2], tf.float32))

    one, other = Traced(call, UNKNOWN), Traced(call, UNKNOWN)
    ids = [_callback(traced.lower(_static(FLOAT, 2)).attributes) for traced in (one, other)]
    assert len(set(ids)) == 2


def test_what_is_registered_goes_with_the_graph() -> None:
    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda x: x, [x], tf.TensorSpec([2], tf.float32))

    gc.collect()
    size = _runtime.size()
    traced = Traced(call, UNKNOWN)
    traced.lower(_static(FLOAT, 2))
    assert _runtime.size() == size + 1
    node = traced.node.SerializeToString()
    del traced
    gc.collect()
    assert _runtime.size() == size
    with pytest.raises(hostcall.LoweringError, match="does not exist in this process"):
        lower(node, [_static(FLOAT, 2)])


def test_an_unknown_token_is_named_with_its_op() -> None:
    traced = Traced(
        lambda x: tf.numpy_function(lambda x: x, [x], tf.TensorSpec([2], tf.float32), name="my_op"),
        UNKNOWN,
    )
    traced.node.attr["token"].s = b"pyfunc_elsewhere"
    with pytest.raises(hostcall.LoweringError) as caught:
        traced.lower(_static(FLOAT, 2))
    assert "op 'my_op' (PyFunc)" in str(caught.value)
    assert "key=pyfunc_elsewhere" in str(caught.value)


def test_a_lowering_error_is_a_value_error_that_goes_to_the_user_as_it_is() -> None:
    with hostcall.scope(route="custom_call"):
        traced = Traced(lambda x: tf.numpy_function(lambda x: x, [x], tf.float32), UNKNOWN)
    with pytest.raises(ValueError, match=r"^hostcall: the shape of result 0") as caught:
        traced.lower(_static(FLOAT, 2))
    program = tf.function(traced.concrete, jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"^hostcall: the shape of result 0"):
        program(tf.constant([1.0, 2.0]))
    assert isinstance(caught.value, hostcall.LoweringError)


def test_a_py_function_that_can_be_differentiated_has_a_result_more() -> None:
    spec = tf.TensorSpec([2], tf.float32)
    floats = Traced(lambda x: tf.py_function(lambda x: x, [x], spec), UNKNOWN)
    assert floats.lower(_static(FLOAT, 2)).results == [([2], [False]), ([], [])]
    ints = Traced(
        lambda x: tf.py_function(lambda x: tf.cast(x, tf.float32), [x], spec),
        tf.TensorSpec(None, tf.int32),
    )
    assert ints.lower(_static(INT, 2)).results == [([2], [False])]


def test_a_gradient_call_gets_the_shapes_of_the_forward_inputs_and_not_their_values() -> None:
    def program(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(tf.reduce_sum, [x], tf.TensorSpec([], tf.float32))
        return tape.gradient(y, x)

    # Traced for an unknown size: the gradient's shape must come from somewhere else.
    concrete = tf.function(program).get_concrete_function(tf.TensorSpec([None, 3], tf.float32))
    calls = [node for node in concrete.function_def.node_def if node.op == "EagerPyFunc"]
    _, backward = sorted(calls, key=lambda node: len(node.input))
    state, upstream = _static(tf.int64.as_datatype_enum), _static(FLOAT)
    answer = lower(backward.SerializeToString(), [state, upstream, _static(FLOAT, 5, 3)])
    assert answer.has_side_effect is True
    assert answer.operands == [0, 1]
    assert answer.results[0] == ([5, 3], [False, False])


def test_sub_byte_integers_are_named_with_their_element_types() -> None:
    traced = Traced(
        lambda x, y: tf.numpy_function(lambda x, y: y, [x, y], tf.TensorSpec([2], INT4)),
        UNKNOWN,
        tf.TensorSpec(None, INT4),
    )
    attributes = traced.lower(_static(FLOAT, 2), _static(INT4.as_datatype_enum, 2)).attributes
    assert _attribute(attributes, "sub_byte_operands") == [1, 21]
    assert _attribute(attributes, "sub_byte_results") == [0, 21]


_WRONG_ANSWER = """
import tensorflow as tf
import hostcall
from hostcall._compiler import kernel_hook, lowering
from hostcall_runtime import _library

def answer(**changes):
    def lower(node, operands):
        return lowering.lower(node, operands)._replace(**changes)
    bindings = _library.load("hostcall._tensorflow")
    bindings.set_hooks(lower=lower, evaluate=lambda node, inputs: folded)

def run():
    result = tf.TensorSpec([1], tf.float32)
    program = lambda: tf.numpy_function(lambda x: -x, [tf.ones([1])], result)
    try:
        print(tf.function(program, jit_compile=True)().numpy())
    except tf.errors.InternalError as error:
        print("refused" if "was lowered as one with others" in error.message else error.message)

one = tf.io.serialize_tensor(tf.ones([1])).numpy()
other_shape = tf.io.serialize_tensor(tf.ones([2])).numpy()
other_dtype = tf.io.serialize_tensor(tf.ones([1], tf.int32)).numpy()
def shape(dims, dynamic):
    return lowering.BoundedShape(dims, dynamic)

for results in ([], [shape([1], [False])] * 300):
    answer(results=results)
    run()
for used in ([1], [-1], [1 << 40]):
    answer(operands=used)
    run()
answer(results=[shape([1], [])])
run()
for folded in ([], [one, one], [other_shape], [other_dtype]):
    answer(foldable=True)
    run()
"""


def test_an_answer_for_another_op_is_refused(run_python: Callable[..., str]) -> None:
    assert run_python(_WRONG_ANSWER).splitlines() == ["refused"] * 10
