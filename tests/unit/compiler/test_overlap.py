"""hostcall._compiler.overlap: which calls begin early, and what their results are taken after."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.one_program import async_calls, ordering
from hostcall._tf import concrete_functions

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


@hostcall.callback(result=lambda x: x, stateful=False, concurrent=True)
def call(x: Any) -> Any:
    return x


class Program:
    """A function, rewritten to begin calls early."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        concrete = tf.function(function).get_concrete_function(*(args or (X,)))
        library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
        before = library.SerializeToString(deterministic=True)
        async_calls.free(library)
        new, entry = ordering.order_side_effects(library, concrete.function_def.signature.name)
        async_calls.begin_early(new, entry, library)
        if not any(node.op == async_calls.GATE for f in new.function for node in f.node_def):
            assert before == library.SerializeToString(deterministic=True)
        self._nodes = next(f.node_def for f in new.function if f.signature.name == entry)

    def nodes(self, op: str) -> list[Any]:
        return [node for node in self._nodes if node.op == op]

    def gates(self) -> list[list[str]]:
        """Return for each gate the names of the nodes that it waits for."""
        nodes = self.nodes(async_calls.GATE)
        return [[value.partition(":")[0] for value in node.input] for node in nodes]


def _not_needed(x: Any) -> Any:
    call(x + 1.0)
    tf.linalg.matmul(x, x)
    return call(x)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        pytest.param(lambda x: call(x) + 1.0, 1, id="a lone call"),
        pytest.param(lambda x: call(call(call(x))), 3, id="calls that need one another"),
        pytest.param(lambda x: x @ call(x @ x), 1, id="what is heavy and before or after it"),
        pytest.param(lambda x: (call(x), tf.exp(x) + tf.reduce_sum(x)), 1, id="what is light"),
        pytest.param(_not_needed, 2, id="what nobody needs"),
    ],
)
def test_calls_that_stay_as_they_are(function: Any, calls: int) -> None:
    program = Program(function)
    assert len(program.nodes("PyFuncStateless")) == calls
    assert program.gates() == []


def test_what_results_lead_to_runs_before_the_next_results_are_taken() -> None:
    def function(x: Any) -> Any:
        first, second = call(x), call(x + 1.0)
        return tf.linalg.matmul(first, first, name="product"), second

    first, second = Program(function).gates()
    assert sorted(first) == ["call/hostcall_start", "call_1/hostcall_start"]
    assert second == ["product", "hostcall_gate_0"]


def test_loops_and_branches_and_calls_are_heavy() -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.linalg.matmul(x, x)

    def function(x: Any, choice: Any) -> Any:
        count = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])[0]
        chosen = tf.cond(choice, lambda: tf.linalg.matmul(x, x), lambda: x)
        return call(x), count, chosen, inner(x)

    (gate,) = Program(function, X, tf.constant(True)).gates()
    assert gate[0] == "call/hostcall_start"
    assert len(gate) == 4


def test_values_that_xla_has_no_arrays_of_are_not_taken() -> None:
    def function(x: Any) -> Any:
        start = [0, tf.TensorArray(tf.float32, 3)]
        loop = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.write(i, x)), start)
        return call(x), loop[1].stack()

    (node,) = Program(function).nodes(async_calls.GATE)
    assert tf.variant.as_datatype_enum not in node.attr["Tawaited"].list.type


@pytest.mark.parametrize("how", [{"borrow": True}, {"out": True}, {"memo": True}])
def test_calls_that_need_the_memory_of_the_program_are_left_alone(how: dict[str, Any]) -> None:
    def function(x: Any, out: Any = None) -> Any:
        return x

    other = hostcall.callback(function, result=lambda x: x, stateful=False, concurrent=True, **how)
    assert Program(lambda x: other(x) + other(x + 1.0)).gates() == []
