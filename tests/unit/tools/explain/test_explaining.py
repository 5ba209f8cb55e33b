"""hostcall.explain: every script op with its place, route and reason, and what is compiled."""

import gc
import os
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import refusals
from hostcall._tf import concrete_functions
from hostcall._tools.explain import explaining
from tests.support.helpers import assert_says, gradient_of, line_of
from tests.support.versions import shuffle_is_refused

X = tf.TensorSpec([3], tf.float32)
calls: list[str] = []


def unique(x: np.ndarray) -> np.ndarray:
    calls.append("unique")
    return np.unique(x)


def double(x: np.ndarray) -> np.ndarray:
    calls.append("double")
    return 2 * x


def partitioned_program(x: tf.Tensor) -> tf.Tensor:
    y = tf.sin(x) * 2.0
    z = tf.numpy_function(unique, [y], tf.float32)
    return tf.reduce_sum(tf.cos(z)) + tf.reduce_sum(y)


def whole_program(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(double, [tf.sin(x)], tf.TensorSpec([3], tf.float32)) + 1.0


def test_a_partitioned_function_and_its_script_op(every_cluster: None) -> None:
    calls.clear()
    explanation = hostcall.explain(tf.function(partitioned_program, jit_compile=True), X)
    assert calls == []
    (op,) = explanation.script_ops
    assert (op.kind, op.callback) == ("tf.numpy_function", "unique")
    assert op.file == __file__
    assert op.line == line_of(partitioned_program, "tf.numpy_function")
    assert op.defined_at == f"{__file__}:{line_of(unique, 'def unique')}"
    assert op.route == "partition"
    assert "shape of result 0 is not known" in op.reason
    assert [(v.dtype, v.shape, v.known) for v in op.operands] == [("float32", "(3,)", "known")]
    assert [(v.dtype, v.known) for v in op.results] == [("float32", "unknown")]
    assert op.bytes_copied is None
    assert op.cluster is None
    first, second = explanation.clusters
    assert {"Sin", "Mul"} <= {node.op for node in first.ops}
    assert {"Cos", "Sum"} <= {node.op for node in second.ops}
    assert first.function == second.function == op.function
    assert op.takes_from == (first.node,)
    assert set(second.takes_from) == {first.node, op.node}
    assert "2 compiled clusters and 1 script op on the host" in explanation.headline


def test_a_function_that_stays_whole() -> None:
    explanation = hostcall.explain(tf.function(whole_program, jit_compile=True), X)
    (function,) = explanation.functions
    assert function.mode == "compiled"
    (op,) = explanation.script_ops
    (cluster,) = explanation.clusters
    assert op.route == "custom_call"
    assert op.cluster == cluster.name
    assert op.bytes_copied == 3 * 4 + 3 * 4
    assert explanation.headline == "one compiled program with 1 script op in it"


def test_a_function_that_is_not_compiled() -> None:
    explanation = hostcall.explain(tf.function(partitioned_program), X)
    (op,) = explanation.script_ops
    assert (op.route, op.reason) == ("plain", "the function is not compiled")
    assert op.line == line_of(partitioned_program, "tf.numpy_function")
    assert explanation.clusters == ()
    assert explanation.headline.startswith("not compiled")


def test_a_plain_function_and_the_compiled_ones_that_it_calls() -> None:
    inner = tf.function(partitioned_program, jit_compile=True)

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return inner(tf.numpy_function(double, [x], tf.TensorSpec([3], tf.float32)))

    explanation = hostcall.explain(outer, X)
    assert [f.mode for f in explanation.functions] == ["host", "partitioned"]
    assert [op.route for op in explanation.script_ops] == ["plain", "partition"]
    plain, partitioned = explanation.script_ops
    assert partitioned.follows == plain.node
    assert partitioned.path == explanation.functions[1].path != ""
    call = explanation.host_ops[0]
    assert call.calls == (partitioned.function,)
    assert (call.file, call.line) == (__file__, line_of(outer.python_function, "inner("))
    assert "calls 1 compiled function" in explanation.headline


def test_loops_that_are_partitioned_are_explained_inside() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.sin(x) + tf.reduce_sum(tf.numpy_function(unique, [tf.cos(x)], tf.float32))
            if x[0] > 0.0:
                x = whole_program(x)
        return x

    explanation = hostcall.explain(program, X)
    op, in_a_branch = sorted(explanation.script_ops, key=lambda op: len(op.path))
    body = next(f for f in explanation.functions if f.path == op.path)
    assert body.mode == "partitioned"
    assert op in body.steps
    assert ":body" in op.path
    assert in_a_branch.path.startswith(op.path)
    assert in_a_branch.path.endswith(":then_branch")
    loop = next(op for op in explanation.host_ops if op.op == "While")
    assert body.name in loop.calls
    assert loop.line == line_of(program.python_function, "for _")


def test_shapes_known_bounded_ruled_and_unknown() -> None:
    bounded = hostcall.callback(unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
    ruled = hostcall.callback(double, result=lambda x: tf.TensorSpec([x.shape[0]], x.dtype))
    program = tf.function(lambda x, y: (bounded(x), ruled(y)), jit_compile=True)
    first, second = hostcall.explain(program, X, tf.TensorSpec([None], tf.float32)).script_ops
    results = [(v.shape, v.known, v.nbytes) for v in (*first.results, *second.results)]
    assert results == [("(<=3,)", "bounded", 12), ("(None,)", "shape_function", None)]
    assert first.kind == "hostcall.callback"
    assert (first.bytes_copied, second.bytes_copied) == (24, None)
    assert second.route == "custom_call"


def test_gradients_are_explained_where_their_forward_ops_stand() -> None:
    square = lambda x: tf.py_function(lambda v: v * v, [x], tf.TensorSpec([3], tf.float32))  # noqa: E731
    program = tf.function(lambda x: gradient_of(square, x), jit_compile=True)
    forward, backward = hostcall.explain(program, X).script_ops
    assert (forward.kind, backward.kind) == ("tf.py_function", "gradient of tf.py_function")
    assert backward.location == forward.location
    assert len(forward.results) == 1  # the number of the state is hidden
    assert backward.follows == forward.node


def test_what_happens_is_what_is_explained(run_python: Any) -> None:
    """XLA compiles the clusters that an explanation lists, and nothing else."""
    script = f"""
import os, sys, tempfile
dump = tempfile.mkdtemp()
os.environ["XLA_FLAGS"] = "--xla_dump_to=" + dump
sys.path.insert(0, {os.path.dirname(__file__)!r})
import tensorflow as tf, hostcall, test_explaining
from hostcall._compiler.clusters import costs
from hostcall._tf.graph import function_names
costs.LAUNCH = 0.0  # each cluster is compiled
program = tf.function(test_explaining.partitioned_program, jit_compile=True)
clusters = hostcall.explain(program, test_explaining.X).clusters
program(tf.constant([1.0, 2.0, 3.0]))
modules = [name for name in os.listdir(dump) if name.endswith(".before_optimizations.txt")]
names = [function_names.without_number(c.name) for c in clusters]
print(len(modules), all(any(name in module for module in modules) for name in names))
"""
    assert run_python(script).split() == ["2", "True"]


def test_the_same_for_a_concrete_function_a_method_and_arguments_by_name() -> None:
    class Model(tf.Module):
        @tf.function(jit_compile=True)
        def __call__(self, x: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
            return whole_program(x) * scale

    model = Model()
    explanation = hostcall.explain(model.__call__, x=X, scale=2.0)
    assert [op.callback for op in explanation.script_ops] == ["double"]
    concrete = model.__call__.get_concrete_function(X, scale=2.0)
    assert hostcall.explain(concrete).script_ops == explanation.script_ops


def test_the_table_says_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(__file__))  # locations are relative, and must fit
    text = str(hostcall.explain(tf.function(partitioned_program, jit_compile=True), X))
    assert max(map(len, text.splitlines())) <= 110
    place = f"test_explaining.py:{line_of(partitioned_program, 'tf.numpy_function')}"
    assert_says(text, "unique", place, "partition", "Sin", "Cos", "the shape of")


def test_the_table_shows_names_that_look_like_markup() -> None:
    def strange(x: np.ndarray) -> np.ndarray:
        return x

    strange.__qualname__ = "[bold]x[/red]"
    program = tf.function(lambda x: tf.numpy_function(strange, [x], tf.float32))
    assert "[bold]x[/red]" in str(hostcall.explain(program, X))


def explain_when_it_is_gone(program: Any) -> hostcall.Explanation:
    concrete = tf.function(program, jit_compile=True).get_concrete_function(X)
    name, library = concrete.function_def.signature.name, explaining.library_of(concrete)
    del concrete
    gc.collect()
    return explaining.explain_library(library, name)


def test_functions_that_are_gone_are_said_to_be() -> None:
    result = tf.TensorSpec([3], tf.float32)
    explanation = explain_when_it_is_gone(lambda x: tf.numpy_function(lambda v: v, [x], result))
    (op,) = explanation.script_ops
    assert (op.kind, op.callback, op.file, op.line) == ("tf.numpy_function", "", "", None)
    assert (op.route, op.results[0].shape) == ("custom_call", "(3,)")
    assert "does not have the Python functions behind 'PyFunc'" in explanation.notes[0]
    assert "not here" in str(explanation)
    (op,) = explain_when_it_is_gone(whole_program).script_ops
    assert (op.kind, op.callback) == ("tf.numpy_function", f"{__name__}:double")
    assert op.line == line_of(whole_program, "tf.numpy_function")
    assert "not allowed" in op.problem


@pytest.mark.usefixtures("enabled_again")
def test_a_disabled_hostcall_is_said() -> None:
    concrete = tf.function(whole_program, jit_compile=True).get_concrete_function(X)
    hostcall.disable()
    assert "hostcall is disabled" in hostcall.explain(concrete).notes[0]


def test_what_is_no_function_of_tensorflows_is_refused() -> None:
    with pytest.raises(TypeError, match=r"hostcall\.explain\(tf\.function"):
        hostcall.explain(partitioned_program, X)
    concrete = tf.function(whole_program).get_concrete_function(X)
    with pytest.raises(TypeError, match="Leave out the arguments"):
        hostcall.explain(concrete, X)


def test_importing_hostcall_does_not_import_what_only_explaining_needs(run_python: Any) -> None:
    # TensorFlow itself may import rich, by way of Keras.
    script = (
        "import sys, tensorflow; before = set(sys.modules); import hostcall; "
        "print({'rich', 'click'} & set(sys.modules) - before)"
    )
    assert run_python(script).strip() == "set()"


def test_functions_whose_results_are_kept() -> None:
    kept = hostcall.callback(double, result=lambda x: x, stateful=False, memo=True)
    called = hostcall.callback(double, result=lambda x: x)
    explanation = hostcall.explain(tf.function(lambda x: kept(x) + called(x)), X)
    assert sorted(op.memo for op in explanation.script_ops) == [False, True]
    assert explanation.to_html().count("for new inputs alone") == 1


def test_a_function_that_xla_has_refused_is_explained_as_it_runs() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):  # XLA compiles no range in it whose limit a step computes
            x += tf.reduce_sum(tf.cast(tf.range(tf.cast(x[0] * 1.5, tf.int32)), tf.float32))
        return x

    x = tf.constant([2.0, 3.0])
    program(x)
    explanation = hostcall.explain(program, x)
    assert {one.mode for one in explanation.functions} == {"partitioned"}
    assert "Range" in {one.op for one in explanation.host_ops}


@shuffle_is_refused
def test_clusters_that_xla_has_refused_as_well_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_found", defaultdict(set))

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.sort(tf.random.shuffle(tf.sin(x) + 1.0) * 2.0)

    x = tf.constant([3.0, 1.0, 2.0])
    assert hostcall.explain(program, x).notes == ()
    program(x)
    explanation = hostcall.explain(program, x)
    (note,) = explanation.notes
    assert re.match(r"XLA has refused \d+ clusters? of it as well: '.*Expected comp", note)
    assert note in str(explanation).replace("\n", " ")
    # XLA's texts live as long as the function.
    concrete = program.get_concrete_function(x)
    names = {*concrete_functions.derived_from(concrete.inference_fn.name.decode())}
    assert any(concrete_functions.noted(name, "CPU") for name in names)
    del program, concrete
    gc.collect()
    assert not any(concrete_functions.noted(name, "CPU") for name in names)
