"""hostcall._compiler.constants: what follows from constants alone, in FunctionDefs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hostcall._compiler import constants
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary

MASK = tf.constant([True, False, True, True])
OTHER = tf.constant([False, False, True, True])


def _nothing(_: np.ndarray) -> None:
    """Make hostcall take the function."""


def _library(body: Callable[..., Any], *args: Any) -> tuple[FunctionDefLibrary, str]:
    """Return the functions of a compiled function with a callback, and the name of the first."""

    @tf.function(jit_compile=True)
    def function(*args: Any) -> Any:
        result = body(*args)
        tf.numpy_function(_nothing, [args[0]], [])
        return result

    traced = function.get_concrete_function(*args)
    graph_def = traced.graph.as_graph_def()
    return concrete_functions.library_of(traced, graph_def), traced.function_def.signature.name


def _folded(body: Callable[..., Any], *args: Any) -> tuple[dict[str, Any], str]:
    library, name = _library(body, *args)
    return defs.reachable(constants.folded(library, name), name), name


def _count(functions: dict[str, Any], op: str) -> int:
    return sum(len(defs.nodes_of(function, {op})) for function in functions.values())


X = tf.constant([1.0, 2.0, 3.0, 4.0])


def _masked(x: Any, mask: Any = MASK) -> Any:
    return tf.reduce_sum(tf.boolean_mask(x, mask))


@tf.function
def called(x: Any, mask: Any) -> Any:
    return _masked(x, mask)


def test_a_captured_mask_is_found_before_compilation() -> None:
    functions, name = _folded(_masked, X)
    assert not _count(functions, "Where")
    found = [n for n in functions[name].node_def if n.name.endswith("Where/constant")]
    indices = tf.make_ndarray(found[0].attr["value"].tensor)
    np.testing.assert_array_equal(indices, [[0], [2], [3]])


def test_what_led_to_it_is_gone_and_the_rest_stays() -> None:
    before, name = _library(lambda x: _masked(x) + tf.reduce_prod(x), X)
    after = defs.by_name(constants.folded(before, name))[name]
    new = {node.name for node in after.node_def}
    gone = {n.name for n in defs.by_name(before)[name].node_def} - new
    assert {name.rpartition("/")[2] for name in gone} <= {"Where", "Reshape_1", "shape"}
    assert {node.op for node in after.node_def} >= {"Prod", "Sum", "GatherV2", "PyFunc"}


@pytest.mark.parametrize(
    "body",
    [
        lambda x: _masked(x, x > 2.0),
        lambda x: tf.reshape(x, [2, 2]),
        lambda x: tf.tile(x, [2]) * tf.reduce_sum(x),
    ],
    ids=["data", "constant operands", "no sizes"],
)
def test_other_functions_are_left_as_they_are(body: Callable[..., Any]) -> None:
    library, name = _library(body, X)
    assert constants.folded(library, name) is library


def test_an_argument_is_no_constant() -> None:
    library, name = _library(lambda x, mask: called(x, mask), X, MASK)
    assert constants.folded(library, name) is library


def test_equal_input_gives_equal_output() -> None:
    def body(x: Any) -> Any:
        for _ in tf.range(3):
            x = x + called(x, MASK) * called(x, OTHER)
        return x

    library, name = _library(body, X)
    one, other = (constants.folded(library, name) for _ in range(2))
    assert one is not other
    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def test_a_called_function_has_a_copy_for_each_constant() -> None:
    functions, _ = _folded(lambda x: called(x, MASK) + called(x, OTHER) + called(x, MASK), X)
    copies = [name for name in functions if "called" in name]
    assert len(copies) == 2
    assert all("__digest_" in name for name in copies)
    assert not _count(functions, "Where")


def test_a_caller_without_constants_keeps_the_function() -> None:
    functions, _ = _folded(lambda x: called(x, MASK) + called(x, x > 1.0), X)
    assert len([name for name in functions if "called" in name]) == 2
    assert _count(functions, "Where") == 1


def test_what_a_loop_exchanges_is_no_constant() -> None:
    def body(x: Any) -> Any:
        one, other = MASK, OTHER
        for _ in tf.range(3):
            x = x + _masked(x, one)
            one, other = other, one
        return x

    functions, _ = _folded(body, X)
    assert _count(functions, "Where") == 1


def test_a_loop_returns_its_arguments_still() -> None:
    def body(x: Any) -> Any:
        for _ in tf.range(3):
            x = x + _masked(x)
        return x

    library, name = _library(body, X)
    before = next(f for n, f in defs.by_name(library).items() if "body" in n)
    functions = defs.reachable(constants.folded(library, name), name)
    after = next(f for n, f in functions.items() if "body" in n)
    assert dict(after.ret) == dict(before.ret)
    assert after.signature.input_arg == before.signature.input_arg


def test_large_results_are_computed_by_the_program() -> None:
    many = tf.ones([constants.LARGEST_BYTES // 8 + 1], tf.bool)
    library, name = _library(lambda x: tf.shape(tf.where(many))[0] + tf.size(x), X)
    assert constants.folded(library, name) is library


def test_large_steps_are_not_computed() -> None:
    def body(x: Any) -> Any:
        return tf.reduce_sum(x) + tf.cast(tf.where(tf.range(1 << 30) < 2)[0, 0], tf.float32)

    library, name = _library(body, X)
    assert constants.folded(library, name) is library


def test_an_error_keeps_its_op_and_no_other() -> None:
    outside = tf.constant([0, 9])

    def body(x: Any) -> Any:
        failing = tf.where(tf.gather(MASK, outside))
        return _masked(x) + tf.cast(tf.size(failing), tf.float32)

    functions, _ = _folded(body, X)
    assert _count(functions, "Where") == 1


def test_constants_wait_for_what_was_waited_for() -> None:
    def body(x: Any) -> Any:
        check = tf.debugging.Assert(tf.reduce_all(x > 0.0), [x])
        with tf.control_dependencies([check]):
            mask = tf.identity(MASK)
        return _masked(x, mask)

    functions, name = _folded(body, X)
    found = [n for n in functions[name].node_def if n.name.endswith("Where/constant")]
    assert [*found[0].input] == ["^Assert/AssertGuard/Identity"]


def test_random_numbers_are_no_constants() -> None:
    def body(x: Any) -> Any:
        return _masked(x, tf.random.stateless_uniform([4], [1, 2]) > 0.5)

    library, name = _library(body, X)
    assert constants.folded(library, name) is library


def test_floats_and_large_tensors_are_not_noted() -> None:
    weights = tf.constant([1.0, 2.0, 3.0, 4.0])
    large = tf.zeros([1 << 18], tf.int64)
    library, name = _library(lambda x: _masked(x * weights) + tf.cast(large[0], tf.float32), X)
    function = defs.by_name(library)[name]
    noted = [
        m.attr[attributes.CAPTURED].tensor
        for m in function.arg_attr.values()
        if attributes.CAPTURED in m.attr
    ]
    assert [tensor.dtype for tensor in noted] == [defs.BOOL]
