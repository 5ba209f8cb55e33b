"""hostcall.explain: every script op with its place, route and reason, and what is compiled."""

import gc
import inspect
import json
import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._explain import explaining
from hostcall._functions import source_location

X = tf.TensorSpec([3], tf.float32)
calls: list[str] = []

# Each test says itself which route is asked for.
pytestmark = pytest.mark.usefixtures("auto_route")


def unique(x: np.ndarray) -> np.ndarray:
    calls.append("unique")
    return np.unique(x)


def double(x: np.ndarray) -> np.ndarray:
    calls.append("double")
    return 2 * x


def line_of(function: Any, text: str) -> int:
    """The line of a function's source that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def partitioned_program(x: tf.Tensor) -> tf.Tensor:
    y = tf.sin(x) * 2.0
    z = tf.numpy_function(unique, [y], tf.float32)
    return tf.reduce_sum(tf.cos(z)) + tf.reduce_sum(y)


def whole_program(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(double, [tf.sin(x)], tf.TensorSpec([3], tf.float32)) + 1.0


def test_a_partitioned_function_and_its_script_op() -> None:
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


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_function_without_script_ops(jit_compile: bool) -> None:
    explanation = hostcall.explain(tf.function(lambda x: x + 1.0, jit_compile=jit_compile), X)
    assert explanation.script_ops == ()
    assert len(explanation.clusters) == jit_compile
    assert "<lambda>" in str(explanation)


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


def test_script_ops_in_loops_and_branches_are_listed_with_the_path() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            if x[0] > 0.0:
                x = tf.numpy_function(double, [x], tf.TensorSpec([3], tf.float32))
        return x

    (op,) = hostcall.explain(program, X).script_ops
    assert ":body > " in op.path
    assert op.path.endswith(":then_branch")
    assert op.route == "custom_call"


def test_loops_that_are_partitioned_are_explained_inside() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.sin(x) + tf.reduce_sum(tf.numpy_function(unique, [tf.cos(x)], tf.float32))
        return x

    explanation = hostcall.explain(program, X)
    (op,) = explanation.script_ops
    body = next(f for f in explanation.functions if f.path == op.path)
    assert body.mode == "partitioned"
    assert op in body.steps
    loop = next(op for op in explanation.host_ops if op.op == "While")
    assert body.name in loop.calls
    assert loop.line == line_of(program.python_function, "for _")


def test_order_of_side_effects() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        y = tf.numpy_function(double, [x], tf.TensorSpec([3], tf.float32))
        z = tf.compat.v1.py_func(double, [x], tf.float32, stateful=False)
        return y + tf.reduce_sum(z) + tf.reduce_sum(tf.numpy_function(unique, [x], tf.float32))

    by_callback = {(op.callback, op.stateful): op for op in hostcall.explain(program, X).script_ops}
    assert by_callback["double", True].follows is None
    assert by_callback["double", False].follows is None
    assert by_callback["unique", True].follows == by_callback["double", True].node


def test_shapes_known_bounded_ruled_and_unknown() -> None:
    bounded = hostcall.callback(unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
    ruled = hostcall.callback(double, result=lambda x: tf.TensorSpec([x.shape[0]], x.dtype))

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return bounded(x), ruled(y)

    explanation = hostcall.explain(program, X, tf.TensorSpec([None], tf.float32))
    first, second = explanation.script_ops
    assert [(v.shape, v.known, v.nbytes) for v in first.results] == [("(<=3,)", "bounded", 12)]
    assert [(v.shape, v.known, v.nbytes) for v in second.results] == [
        ("(None,)", "shape_function", None)
    ]
    assert first.kind == "hostcall.callback"
    assert first.bytes_copied == 24
    assert second.bytes_copied is None
    assert second.route == "custom_call"


def test_routes_that_were_asked_for() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(double, [x], tf.TensorSpec([3], tf.float32))

    for route in ("partition", "custom_call"):
        with hostcall.scope(route=route):
            (op,) = hostcall.explain(tf.function(program, jit_compile=True), X).script_ops
        assert (op.route, op.reason) == (route, f"route='{route}' was asked for")


def test_strings_stay_on_the_host() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        text = tf.strings.as_string(x)
        return tf.numpy_function(lambda t: np.float32(len(t)), [text], tf.float32)

    explanation = hostcall.explain(program, X)
    (op,) = explanation.script_ops
    assert "a string cannot enter" in op.reason
    as_string = next(op for op in explanation.host_ops if op.op == "AsString")
    assert as_string.line == line_of(program.python_function, "as_string")
    assert as_string.reason


def test_gradients_are_explained_where_their_forward_ops_stand() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(lambda v: v * v, [x], tf.TensorSpec([3], tf.float32))
        return tape.gradient(y, x)

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
from hostcall._tf import function_defs
program = tf.function(test_explaining.partitioned_program, jit_compile=True)
clusters = hostcall.explain(program, test_explaining.X).clusters
program(tf.constant([1.0, 2.0, 3.0]))
modules = [name for name in os.listdir(dump) if name.endswith(".before_optimizations.txt")]
names = [function_defs.without_number(c.name) for c in clusters]
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


def test_as_data() -> None:
    explanation = hostcall.explain(tf.function(partitioned_program, jit_compile=True), X)
    data = json.loads(json.dumps(explanation.to_dict()))
    assert data["script_ops"][0]["callback"] == "unique"
    assert [f["mode"] for f in data["functions"]] == ["partitioned"]


def test_the_table_says_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(__file__))  # locations are relative, and must fit
    text = str(hostcall.explain(tf.function(partitioned_program, jit_compile=True), X))
    assert max(map(len, text.splitlines())) <= 110
    line = line_of(partitioned_program, "tf.numpy_function")
    for part in ("unique", f"test_explaining.py:{line}", "partition", "Sin", "Cos", "the shape of"):
        assert part in text


def test_the_table_shows_names_that_look_like_markup() -> None:
    def strange(x: np.ndarray) -> np.ndarray:
        return x

    strange.__qualname__ = "[bold]x[/red]"
    program = tf.function(lambda x: tf.numpy_function(strange, [x], tf.float32))
    assert "[bold]x[/red]" in str(hostcall.explain(program, X))


def test_a_saved_model_in_the_process_that_made_it(tmp_path: Any) -> None:
    module = tf.Module()
    module.f = tf.function(partitioned_program, input_signature=[X], jit_compile=True)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    (op,) = hostcall.explain(loaded.f, X).script_ops
    assert (op.callback, op.route) == ("unique", "partition")
    assert op.line == line_of(partitioned_program, "tf.numpy_function")


def explain_when_it_is_gone(program: Any) -> hostcall.Explanation:
    concrete = tf.function(program, jit_compile=True).get_concrete_function(X)
    name, library = concrete.function_def.signature.name, explaining.library_of(concrete)
    del concrete
    gc.collect()
    return explaining.explain_library(library, name)


def test_functions_that_are_gone_are_said_to_be() -> None:
    explanation = explain_when_it_is_gone(
        lambda x: tf.ensure_shape(tf.numpy_function(lambda v: v, [x], tf.float32), x.shape)
    )
    (op,) = explanation.script_ops
    assert (op.kind, op.callback, op.file, op.line) == ("tf.numpy_function", "", "", None)
    assert (op.route, op.results[0].shape) == ("custom_call", "(3,)")
    assert "does not have the Python functions behind 'PyFunc'" in explanation.notes[0]
    assert "not here" in str(explanation)


def test_functions_that_are_gone_keep_their_names() -> None:
    (op,) = explain_when_it_is_gone(whole_program).script_ops
    assert (op.kind, op.callback) == ("tf.numpy_function", f"{__name__}:double")
    assert op.line == line_of(whole_program, "tf.numpy_function")
    assert "not allowed" in op.problem


def test_a_disabled_hostcall_is_said() -> None:
    concrete = tf.function(whole_program, jit_compile=True).get_concrete_function(X)
    hostcall.disable()
    try:
        explanation = hostcall.explain(concrete)
    finally:
        hostcall.enable()
    assert "hostcall is disabled" in explanation.notes[0]


@pytest.mark.parametrize(
    ("description", "parts"),
    [
        (
            "tf.numpy_function of f (/a b/c.py:3), called at /d (e)/f.py:7",
            ("tf.numpy_function", "f", "/a b/c.py:3", "/d (e)/f.py:7"),
        ),
        ("tf.py_function of f, called at ", ("tf.py_function", "f", "", "")),
        (
            "the gradient of the gradient of tf.py_function of f.<locals>.g (a.py:1)",
            ("gradient of the gradient of tf.py_function", "f.<locals>.g", "a.py:1", ""),
        ),
        ("anything", ("", "anything", "", "")),
    ],
)
def test_descriptions_are_taken_apart(description: str, parts: tuple[str, ...]) -> None:
    assert source_location.split_description(description) == parts


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
