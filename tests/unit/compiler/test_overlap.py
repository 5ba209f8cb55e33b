"""hostcall._compiler.overlap: which calls begin early, and what their results are taken after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import async_calls, ordering
from hostcall._tf import function_defs

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


@hostcall.callback(result=lambda x: x, stateful=False, concurrent=True)
def call(x: Any) -> Any:
    return x


@hostcall.callback(result=lambda x: x)
def effect(x: Any) -> Any:
    return x


class Program:
    """A function, and all functions that it reaches, rewritten to begin calls early."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        concrete = tf.function(function).get_concrete_function(*(args or (X,)))
        library = function_defs.library_of(concrete, concrete.graph.as_graph_def())
        before = library.SerializeToString(deterministic=True)
        async_calls.free(library)
        new, self.entry = ordering.order_side_effects(library, concrete.function_def.signature.name)
        async_calls.begin_early(new, self.entry, library)
        self.functions = {f.signature.name: f for f in new.function}
        if not any(async_calls.GATE in self.ops(name) for name in self.functions):
            assert before == library.SerializeToString(deterministic=True)

    def nodes(self, op: str, function: str | None = None) -> list[Any]:
        return [n for n in self.functions[function or self.entry].node_def if n.op == op]

    def ops(self, function: str | None = None) -> list[str]:
        return [node.op for node in self.functions[function or self.entry].node_def]

    def gates(self, function: str | None = None) -> list[list[str]]:
        """Return for each gate the names of the nodes that it waits for."""
        return [
            [value.partition(":")[0] for value in node.input]
            for node in self.nodes(async_calls.GATE, function)
        ]


def _not_needed(x: Any) -> Any:
    call(x + 1.0)
    tf.linalg.matmul(x, x)
    return call(x)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        pytest.param(lambda x: call(x) + 1.0, 1, id="a lone call"),
        pytest.param(lambda x: call(call(call(x))), 3, id="calls that need one another"),
        pytest.param(
            lambda x: tf.linalg.matmul(call(tf.linalg.matmul(x, x)), x),
            1,
            id="what is heavy and comes before or after it",
        ),
        pytest.param(lambda x: (call(x), tf.exp(x) + tf.reduce_sum(x)), 1, id="what is light"),
        pytest.param(_not_needed, 2, id="what nobody needs"),
    ],
)
def test_calls_that_stay_as_they_are(function: Any, calls: int) -> None:
    program = Program(function)
    assert program.ops().count("PyFuncStateless") == calls
    assert program.gates() == []


def test_independent_calls_begin_before_any_is_waited_for() -> None:
    program = Program(lambda x: call(x) + call(x + 1.0) + call(x + 2.0))
    assert len(program.nodes(async_calls.START)) == 3
    (gate,) = program.gates()
    assert sorted(gate) == [f"call{i}/hostcall_start" for i in ("", "_1", "_2")]
    for done in program.nodes(async_calls.DONE):
        assert list(done.input[-2:]) == [
            f"{done.name}/hostcall_start:handle:0",
            "hostcall_gate_0:gate:0",
        ]


def test_a_call_is_waited_for_after_what_is_heavy() -> None:
    program = Program(lambda x: (call(x) + 1.0, tf.linalg.matmul(x, x, name="product")))
    assert program.gates() == [["call/hostcall_start", "product"]]


def test_a_second_level_has_a_gate_of_its_own() -> None:
    def function(x: Any) -> Any:
        first, second = call(x), call(x + 1.0)
        return call(first + second) + call(first - second)

    gates = Program(function).gates()
    assert [len(gate) for gate in gates] == [2, 3]
    assert gates[1][-1] == "hostcall_gate_0"


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
        count = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])[0]
        return tf.linalg.matmul(x, x) + tf.cast(count, x.dtype)

    def function(x: Any, choice: Any) -> Any:
        chosen = tf.cond(choice, lambda: tf.linalg.matmul(x, x), lambda: x)
        return call(x), chosen, inner(x)

    (gate,) = Program(function, X, tf.constant(True)).gates()
    assert gate[0] == "call/hostcall_start"
    assert len(gate) >= 3


def test_calls_with_side_effects_go_on_meanwhile() -> None:
    program = Program(lambda x: (call(x), effect(x)))
    assert program.gates() == [["call/hostcall_start", "effect"]]


def test_values_that_xla_has_no_arrays_of_are_not_taken() -> None:
    def function(x: Any) -> Any:
        array = tf.while_loop(
            lambda i, a: i < 3,
            lambda i, a: (i + 1, a.write(i, x)),
            [0, tf.TensorArray(tf.float32, 3)],
        )[1]
        return call(x), array.stack()

    program = Program(function)
    for node in program.nodes(async_calls.GATE):
        assert tf.variant.as_datatype_enum not in node.attr["Tawaited"].list.type


@pytest.mark.parametrize(
    "body", [lambda x: call(x) + call(-x), lambda x: effect(call(x) + call(-x))]
)
def test_bodies_of_loops_are_copied(body: Any) -> None:
    def function(x: Any) -> Any:
        return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, body(x)), [0, x])[1]

    program = Program(function)
    (loop,) = [n for n in program.functions[program.entry].node_def if "While" in n.op]
    gates = program.gates(loop.attr["body"].func.name)
    assert [len(gate) for gate in gates][:1] == [2]


def test_names_are_the_same_each_time() -> None:
    def function(x: Any) -> Any:
        return tf.map_fn(lambda v: call(v) + call(v + 1.0), x)

    first, second = Program(function), Program(function)
    assert len(first.functions) == len(second.functions)


@pytest.mark.parametrize("how", [{"borrow": True}, {"out": True}, {"memo": True}])
def test_calls_that_need_the_memory_of_the_program_are_left_alone(how: dict[str, Any]) -> None:
    def function(x: Any, out: Any = None) -> Any:
        return x

    other = hostcall.callback(function, result=lambda x: x, stateful=False, concurrent=True, **how)
    assert Program(lambda x: other(x) + other(x + 1.0)).gates() == []


def test_pure_calls_are_calls_without_side_effects() -> None:
    function = hostcall.declare(lambda x: x, pure=True, concurrent=True, result=lambda x: x)

    def pure(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(function, [x], x.dtype), x.shape)

    def program(x: Any) -> Any:
        return pure(x) + pure(x + 1.0)

    assert [len(gate) for gate in Program(program).gates()] == [2]
