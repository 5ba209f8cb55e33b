"""hostcall.rewrite and hostcall.partition_pass: graph partitioning as a pass over graphs."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tf.graph.function_defs import is_compiled
from tests.support.fate import Fate
from tests.support.helpers import raising

X = tf.TensorSpec([3], tf.float32)
VALUE = tf.constant([1.0, 2.0, 1.0])


# Each test says itself which route is asked for.
pytestmark = pytest.mark.usefixtures("auto_route")


def partitioned_program(x: tf.Tensor) -> tf.Tensor:
    z = tf.numpy_function(np.unique, [tf.sin(x) * 2.0], tf.float32)
    return tf.reduce_sum(tf.cos(z)) + tf.reduce_sum(x)


def whole_program(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(lambda x: 2 * x, [tf.sin(x)], tf.float32)
    return tf.reduce_sum(tf.ensure_shape(y, [3]))


def concrete(function: Callable[..., Any], *args: Any) -> Any:
    return tf.function(function, jit_compile=True).get_concrete_function(*(args or [X]))


def caller(*functions: Any) -> tf.compat.v1.GraphDef:
    """A graph that calls functions with a placeholder `x`; their results are `y0`, `y1`, ..."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        for number, function in enumerate(functions):
            tf.identity(function(x), name=f"y{number}")
    return graph.as_graph_def()


def run(graph_def: tf.compat.v1.GraphDef, *results: str) -> Any:
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run([f"{name}:0" for name in results], {"x:0": VALUE.numpy()})


def compiled(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    return {f.signature.name for f in graph_def.library.function if is_compiled(f)}


def called(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    """The names of the functions that nodes with `_XlaMustCompile` call."""
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return {node.attr["f"].func.name for node in nodes if is_compiled(node)}


def test_a_function_is_rewritten_and_computes_the_same(every_cluster: None) -> None:
    original = concrete(partitioned_program)
    rewritten = hostcall.rewrite(original)
    assert rewritten is not original
    np.testing.assert_allclose(rewritten(VALUE), partitioned_program(VALUE), rtol=1e-6)
    explanation = hostcall.explain(rewritten)
    assert explanation.functions[0].mode == "host"
    assert len([f for f in explanation.functions if f.mode == "compiled"]) == 2
    assert [op.callback for op in explanation.script_ops] == ["unique"]


def test_the_signature_stays() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor, options: dict[str, Any], scale: float = 2.0) -> Any:
        z = tf.numpy_function(np.unique, [x * options["a"]], tf.float32)
        return {"sum": tf.reduce_sum(z) * scale, "rest": [None, (x, options["b"])]}

    options = {"a": tf.TensorSpec([], tf.float32), "b": tf.TensorSpec([None], tf.float32)}
    original = program.get_concrete_function(X, options, scale=3.0)
    rewritten = hostcall.rewrite(original)
    assert rewritten.structured_input_signature == original.structured_input_signature
    given = {"a": tf.constant(2.0), "b": tf.constant([1.0])}
    expected, actual = (f(VALUE, given, scale=3.0) for f in (original, rewritten))
    tf.nest.assert_same_structure(expected, actual)
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        if one is not None:
            np.testing.assert_array_equal(one, other)


def test_variables_and_captured_tensors_are_shared() -> None:
    variable, captured = tf.Variable(1.0), tf.constant(10.0)

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        variable.assign_add(1.0)
        z = tf.numpy_function(np.unique, [x * variable], tf.float32)
        variable.assign_add(tf.reduce_sum(z))
        return variable * captured

    rewritten = hostcall.rewrite(program.get_concrete_function(X))
    assert rewritten.variables == (variable,)
    assert float(rewritten(VALUE)) == 80.0  # 2 + (2 + 4) = 8, times 10
    assert float(variable) == 8.0


def test_nothing_is_kept_of_functions_that_are_dropped() -> None:
    def program() -> Fate:
        def distinct(x: np.ndarray) -> np.ndarray:
            return np.unique(x)

        original = concrete(lambda x: tf.numpy_function(distinct, [tf.sin(x)], tf.float32))
        hostcall.explain(original)
        hostcall.explain(hostcall.rewrite(original))
        hostcall.rewrite(original)(VALUE)
        return Fate(distinct)

    program().assert_goes()


def test_a_function_that_need_not_be_partitioned_is_given_back() -> None:
    plain = tf.function(partitioned_program).get_concrete_function(X)
    for original in (concrete(whole_program), plain):
        assert hostcall.rewrite(original) is original


def test_a_graph_is_rewritten_where_it_has_to_be_and_nowhere_else() -> None:
    partitioned = tf.function(partitioned_program, jit_compile=True)
    whole = tf.function(whole_program, jit_compile=True)
    plain = tf.function(lambda x: x + 1.0)
    graph_def = caller(partitioned, whole, plain)
    before = graph_def.SerializeToString(deterministic=True)
    rewritten = hostcall.rewrite(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before
    old = {f.signature.name: f for f in graph_def.library.function}
    new = {f.signature.name: f for f in rewritten.library.function}
    (replaced,) = {name for name in old if new[name] != old[name]}
    assert "partitioned_program" in replaced
    clusters = set(new) - set(old)
    assert compiled(rewritten) == compiled(graph_def) - {replaced} | clusters
    assert called(rewritten) == called(graph_def) - {replaced} | clusters
    nodes = zip(graph_def.node, rewritten.node, strict=True)
    (changed,) = [one for one, other in nodes if one != other]
    assert changed.attr["f"].func.name == replaced
    expected = [partitioned_program(VALUE), whole_program(VALUE), VALUE + 1.0]
    for actual, value in zip(run(rewritten, "y0", "y1", "y2"), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-6)


def test_compiled_calls_of_functions_that_are_not_compiled_themselves(every_cluster: None) -> None:
    graph_def = caller(tf.function(partitioned_program))
    call = next(node for node in graph_def.node if "PartitionedCall" in node.op)
    call.attr["_XlaMustCompile"].b = True
    rewritten = hostcall.rewrite(graph_def)
    old = {f.signature.name: f for f in graph_def.library.function}
    new = {f.signature.name: f for f in rewritten.library.function}
    assert {name: new[name] for name in old} == old
    assert len(compiled(rewritten)) == 2
    np.testing.assert_allclose(run(rewritten, "y0")[0], partitioned_program(VALUE), rtol=1e-6)


def test_rewriting_twice_changes_nothing_more() -> None:
    once = hostcall.rewrite(caller(tf.function(partitioned_program, jit_compile=True)))
    twice = hostcall.rewrite(once)
    assert twice is not once
    assert twice.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)
    function = hostcall.rewrite(concrete(partitioned_program))
    assert hostcall.rewrite(function) is function


def test_the_route_partition_partitions_around_whatever_has_no_kernel() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        number = tf.strings.to_number(tf.strings.as_string(tf.sin(x)))
        return tf.cos(number)

    rewritten = hostcall.rewrite(concrete(program), route="partition")
    np.testing.assert_allclose(rewritten(VALUE), program(VALUE), rtol=1e-5)
    partitioned = hostcall.rewrite(concrete(whole_program), route="partition")
    assert [op.route for op in hostcall.explain(partitioned).script_ops] == ["plain"]
    np.testing.assert_allclose(partitioned(VALUE), whole_program(VALUE), rtol=1e-6)


def test_the_route_custom_call_keeps_functions_whole() -> None:
    with hostcall.scope(route="partition"):
        original = concrete(whole_program)
        graph_def = caller(tf.function(whole_program, jit_compile=True))
    assert hostcall.explain(original).script_ops[0].route == "partition"
    whole, in_parts = (hostcall.rewrite(original, route=r) for r in ("custom_call", "auto"))
    assert [op.route for op in hostcall.explain(whole).script_ops] == ["custom_call"]
    assert in_parts is not original
    for rewritten in (whole, in_parts):
        np.testing.assert_allclose(rewritten(VALUE), whole_program(VALUE), rtol=1e-6)
    assert compiled(hostcall.rewrite(graph_def, route="custom_call")) == compiled(graph_def)


def test_the_route_custom_call_where_it_cannot_be_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be in one") as caught:
        hostcall.rewrite(concrete(partitioned_program), route="custom_call")
    for part in ("unique", "test_graph_pass.py:", "shape of result 0 is not known", 'route="auto"'):
        assert part in str(caught.value)


def test_equal_graphs_are_rewritten_alike_before_and_after_functions_are_collected() -> None:
    gc.collect()
    gc.disable()
    try:
        graph_def = caller(tf.function(partitioned_program, jit_compile=True))
        before = hostcall.rewrite(graph_def)  # the function is garbage, but still there
        gc.collect()
        after = hostcall.rewrite(graph_def)
    finally:
        gc.enable()
    assert after.SerializeToString(deterministic=True) == before.SerializeToString(
        deterministic=True
    )


def test_functions_on_the_host_get_their_own_arrays() -> None:
    def double(x: np.ndarray) -> np.ndarray:
        x *= 2.0
        return x

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(x)
        first, second = (tf.numpy_function(double, [y], tf.float32) for _ in range(2))
        return tf.reduce_sum(first) + tf.reduce_sum(second) + tf.reduce_sum(y)

    expected = 5.0 * np.sin(VALUE.numpy()).sum()
    rewritten = hostcall.rewrite(program.get_concrete_function(X), route="partition")
    np.testing.assert_allclose(rewritten(VALUE), expected, rtol=1e-5)
    in_graph = hostcall.rewrite(caller(program), route="partition")
    np.testing.assert_allclose(run(in_graph, "y0")[0], expected, rtol=1e-5)


def test_functions_of_constants_are_called_in_each_run() -> None:
    @hostcall.callback(result=tf.TensorSpec([None], tf.float32), stateful=False)
    def clock(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        return x

    calls: list[Any] = []
    program = tf.function(lambda x: x + clock(tf.constant([1.0, 2.0, 3.0])), jit_compile=True)
    rewritten = hostcall.rewrite(program.get_concrete_function(X))
    for _ in range(3):
        rewritten(VALUE)
    assert len(calls) == 3


def test_a_pass_for_pipelines() -> None:
    graph_def = caller(tf.function(partitioned_program, jit_compile=True))
    graph_pass = hostcall.partition_pass()
    assert graph_pass.__name__ == "hostcall_partition"
    assert hostcall.partition_pass(route="custom_call").__name__ == "hostcall_partition_custom_call"
    assert graph_pass(graph_def) == hostcall.rewrite(graph_def)
    with pytest.raises(ValueError, match="cannot be in one"):
        hostcall.partition_pass(route="custom_call")(graph_def)


def test_errors_are_those_of_the_function() -> None:
    fails = raising(ValueError("no such thing"))
    rewritten = hostcall.rewrite(concrete(lambda x: tf.numpy_function(fails, [x], tf.float32)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no such thing") as caught:
        rewritten(VALUE)
    assert isinstance(hostcall.last_error(caught.value), ValueError)


def test_what_cannot_be_rewritten_is_refused() -> None:
    with pytest.raises(TypeError, match="get_concrete_function"):
        hostcall.rewrite(tf.function(partitioned_program))
    with pytest.raises(ValueError, match="not one of 'auto'"):
        hostcall.rewrite(concrete(partitioned_program), route="fast")
    with pytest.raises(ValueError, match="not one of 'auto'"):
        hostcall.partition_pass(route="fast")
