"""Lowering: from a NodeDef and what XLA knows of its inputs to a custom call."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.one_program.lowering import lower
from hostcall_runtime import _library

_runtime = _library.load("hostcall_runtime._runtime")


def traced() -> tuple[Any, bytes]:
    """A function, which owns what its script op calls, and the op's node."""
    result = tf.TensorSpec([2], tf.float32)
    function = tf.function(lambda x: tf.numpy_function(lambda v: v, [x], result))
    concrete = function.get_concrete_function(tf.TensorSpec(None, tf.float32))
    (node,) = [node for node in concrete.function_def.node_def if node.op == "PyFunc"]
    return concrete, node.SerializeToString()


def test_each_op_is_registered_once_and_as_long_as_its_graph_lives() -> None:
    operands = [(tf.float32.as_datatype_enum, [2], [False])]
    gc.collect()
    size = _runtime.size()
    (one, first), (other, second) = traced(), traced()
    answers = [lower(node, operands) for node in (first, second, first)]
    assert answers[0] == answers[2] != answers[1]
    assert _runtime.size() == size + 2
    del one, other
    gc.collect()
    assert _runtime.size() == size
    with pytest.raises(hostcall.LoweringError, match="does not exist in this process"):
        lower(first, operands)


_WRONG_ANSWER = """
import tensorflow as tf
import hostcall
from hostcall._compiler import kernel_hook
from hostcall._compiler.one_program import lowering
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
