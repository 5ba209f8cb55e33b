"""hostcall._ops.lookup: ops of altered graphs, whose tokens are those of other functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import OPS, failure

X = tf.constant([1.0, 2.0])
BOTH = tf.TensorSpec([2], tf.float32)


def _two(a: Any, b: Any = None) -> Any:
    return a, a


def _integers(a: Any) -> Any:
    return tf.cast(a, tf.int32) if isinstance(a, tf.Tensor) else a.astype(np.int32)


# What is called in the place of a function of one float tensor, to one.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "more results": lambda op: op(_two, [X], [BOTH, BOTH]),
    "fewer results": lambda op: op(lambda a: None, [X], []),
    "more inputs": lambda op: op(lambda a, b: a + b, [X, X], BOTH),
    "other dtypes": lambda op: op(_integers, [X], tf.TensorSpec([2], tf.int32)),
}
ROUTES = ["custom_call", "partition"]


def _node(concrete: Any) -> Any:
    definition = concrete.graph.as_graph_def()
    (node,) = [n for n in definition.node if "token" in n.attr]
    return definition, node


def _drop(results: Any) -> None:
    """Drop the results, and keep the op in the graph."""


class Altered:
    """A program of one op, whose token is that of another op's function; it owns both."""

    def __init__(self, op: Any, route: str, other_op: Any, other: Callable[[Any], Any]) -> None:
        with hostcall.scope(route=route):
            self.one = tf.function(lambda: op(lambda a: -a, [X], BOTH)).get_concrete_function()
            self.other = tf.function(lambda: _drop(other(other_op))).get_concrete_function()
        definition, node = _node(self.one)
        node.attr["token"].s = _node(self.other)[1].attr["token"].s

        def program() -> Any:
            return tf.graph_util.import_graph_def(definition, {}, [f"{node.name}:0"])[0]

        self.program = program


_KINDS = [(tf.numpy_function, tf.py_function), (tf.py_function, tf.numpy_function)]
# An op, the op that the function was made for, and the function.
ALTERED = [(op, op, other) for op in OPS for other in OTHERS.values()]
ALTERED += [(*kinds, lambda op: op(lambda a: a, [X], BOTH)) for kinds in _KINDS]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("op", "other_op", "other"), ALTERED)
def test_another_ops_function_is_refused(op: Any, route: str, other_op: Any, other: Any) -> None:
    altered = Altered(op, route, other_op, other)
    error = failure(tf.function(altered.program, jit_compile=True))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert error.message.startswith("hostcall: op 'import/")
    assert "was made for another op" in error.message


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("op", OPS)
def test_plain_graphs_refuse_a_function_of_another_signature(op: Any, other: str) -> None:
    altered = Altered(op, "auto", op, OTHERS[other])
    error = failure(tf.function(altered.program))
    if other == "more inputs":
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert "was made for an op with 2 inputs, and is called by one with 1" in error.message


@pytest.mark.parametrize("jit_compile", [True, False])
def test_the_gradient_of_an_op_with_another_function_is_refused(jit_compile: bool) -> None:
    altered = Altered(tf.py_function, "auto", tf.py_function, OTHERS["more results"])
    definition, node = _node(altered.one)
    node.attr["token"].s = _node(altered.other)[1].attr["token"].s

    @tf.function(jit_compile=jit_compile, autograph=False)
    def gradient(x: tf.Tensor) -> Any:
        constant = next(n.name for n in definition.node if n.op == "Const")
        mapping = {f"{constant}:0": x}
        y = tf.graph_util.import_graph_def(definition, mapping, [f"{node.name}:0"])[0]
        return tf.gradients(y, x)

    with pytest.raises(hostcall.LoweringError, match="was made for another op"):
        gradient(X)


def test_a_function_whose_results_are_kept_is_refused_before_it_is_called() -> None:
    calls: list[Any] = []
    kept = hostcall.declare(calls.append, memo=True, result=lambda a: [BOTH, BOTH])
    op = tf.numpy_function
    altered = Altered(op, "auto", op, lambda op: op(kept, [X], [BOTH] * 2))
    error = failure(tf.function(altered.program, jit_compile=True))
    assert "was made for another op" in error.message
    assert not calls
