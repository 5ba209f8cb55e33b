"""Tests of the ownership of the arrays that functions get: the table of docs/sharp-bits.md."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.helpers import eagerly, jitted, partitioned, plain, stateless_py_func

# Small arrays and large ones take different ways.
SIZES = [3, 3000]


def overwrite(values: Any) -> Any:
    array = values.numpy() if isinstance(values, tf.Tensor) else values
    array[:] = -1.0
    return array


def _callback(kind: Any) -> Callable[..., Any]:
    called = hostcall.callback(overwrite, result=lambda v: v, kind=kind)
    return lambda function, inputs, dtype: called(inputs[0])


# The op, and whether its function has arrays of its own in plain graphs, too.
OPS: dict[str, tuple[Callable[..., Any], bool]] = {
    "numpy_function": (tf.numpy_function, False),
    "py_func": (tf.compat.v1.py_func, False),
    "stateless py_func": (stateless_py_func, False),
    "py_function": (tf.py_function, True),
    "callback": (_callback("numpy"), True),
    "callback of tensors": (_callback("eager"), True),
}


def _program(op: Callable[..., Any], variable: tf.Variable) -> Callable[..., Any]:
    """Overwrites an argument, a variable's value and a computed one, and returns what they are."""

    def program(argument: tf.Tensor) -> Any:
        seen = [argument, variable.read_value(), argument + 1.0]
        results = [op(overwrite, [value], tf.float32) for value in seen]
        for result in results:
            result.set_shape(argument.shape)
        with tf.control_dependencies(results):
            return results, [tf.identity(value) for value in seen]

    return program


@pytest.mark.pairwise
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("route", [eagerly, plain, jitted, partitioned])
@pytest.mark.parametrize("name", OPS)
def test_what_a_function_writes_into_its_arrays(name: str, route: Any, size: int) -> None:
    if DEVICE and route is plain:
        pytest.skip("plain graphs run on the CPU, and get copies of what is on the device")
    op, is_own_in_plain_graphs = OPS[name]
    is_own = is_own_in_plain_graphs or route is not plain
    ones, argument, variable = np.ones(size), tf.ones([size]), tf.Variable(tf.ones([size]))
    results, seen = route(_program(op, variable))(argument)
    np.testing.assert_array_equal(results, [-ones] * 3)
    kept = [argument, variable, *seen[:2], seen[2] - 1.0]
    expected = [ones] * 5 if is_own else [*[-ones] * 4, -2.0 * ones]
    np.testing.assert_array_equal(kept, expected)


DECLARED: dict[str, tuple[Any, dict[str, Any]]] = {
    "timeout": (lambda v: overwrite(v), {"timeout": 100.0}),
    "memo": (lambda v: overwrite(v), {"memo": True}),
    "out": (lambda v, out: np.copyto(out, overwrite(v)), {"out": True, "result": lambda v: v}),
    "a dict": (lambda v: overwrite(v["key"]), {}),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DECLARED)
def test_eager_calls_of_functions_with_a_declaration(name: str, size: int) -> None:
    function, declared = DECLARED[name]
    hostcall.declare(function, **declared)
    argument, variable = tf.ones([size]), tf.Variable(tf.ones([size]))
    for given in (argument, variable):
        inputs: Any = {"key": given} if name == "a dict" else given
        result = tf.numpy_function(function, [inputs], tf.float32)
        np.testing.assert_array_equal(result, -np.ones(size))
        np.testing.assert_array_equal(given, np.ones(size))
