"""Explanations of graph mode's values and errors: the checks, and the ops that are rewritten."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.semantics import failures
from hostcall._ops import settings
from hostcall._tools.explain import explaining
from tests.support.helpers import assert_says, line_of

X = tf.TensorSpec([3], tf.float32)
I = tf.TensorSpec([], tf.int32)  # noqa: E741 - an index
N = tf.TensorSpec([4], tf.int32)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    before = vars(settings.current).copy()
    yield
    hostcall.configure(semantics=before["semantics"], functions=before["functions"])


def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


def sort(x: tf.Tensor) -> Any:
    return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))


def taken(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
    y = tf.gather(sort(x), i)
    for k in tf.range(2):
        y += tf.gather(x, i + k)
    return y, tf.negative(n * n) // i


def partitioned(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
    y = tf.numpy_function(unique, [x], tf.float32)
    return taken(x, i, n), tf.gather(y, i)


def resized(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
    image = tf.image.resize(x[None, :, None, None], [12, 3])
    return tf.gather(sort(x), i), image, n // i


def plain(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
    return tf.gather(x, i), tf.negative(n * n)


def explain(program: Callable[..., Any], **options: Any) -> hostcall.Explanation:
    return hostcall.explain(tf.function(program, **({"jit_compile": True} | options)), X, I, N)


def test_each_check_and_each_rewritten_op_has_its_line() -> None:
    explanation = explain(taken)
    where = {(check.op, check.line) for check in explanation.checks}
    gathers = {("GatherV2", line_of(taken, text)) for text in ("sort(x)", "i + k")}
    assert where == gathers | {("FloorDiv", line_of(taken, "//"))}
    assert {check.file for check in explanation.checks} == {__file__}
    (division,) = (check for check in explanation.checks if check.op == "FloorDiv")
    assert (division.error, division.message) == (
        "InvalidArgumentError",
        "Integer division by zero",
    )
    (rewritten,) = explanation.rewritten
    assert (rewritten.op, rewritten.line) == ("Mul", line_of(taken, "//"))
    assert "square of an integer" in rewritten.difference
    assert not rewritten.on_host


def test_what_is_explained_is_what_the_program_raises() -> None:
    program = tf.function(taken, jit_compile=True)
    (division,) = (check for check in explain(taken).checks if check.op == "FloorDiv")
    with pytest.raises(getattr(tf.errors, division.error)) as raised:
        program(tf.ones([3]), tf.constant(0), tf.ones([4], tf.int32))
    assert_says(str(raised.value), division.message, division.location, f"'{division.node}'")


def test_clusters_have_the_checks_that_one_program_has(every_cluster: None) -> None:
    explanation = explain(partitioned)
    assert explanation.functions[0].mode == "partitioned"
    found = {(check.op, check.line) for check in explanation.checks}
    outer = ("GatherV2", line_of(partitioned, "gather"))
    assert found == {(check.op, check.line) for check in explain(taken).checks} | {outer}
    assert [op.op for op in explanation.rewritten] == ["Mul"]


def test_ops_on_the_host_are_listed_as_such_and_raise_by_themselves() -> None:
    explanation = explain(resized)
    assert explanation.functions[0].mode == "compiled"
    (resize,) = explanation.rewritten
    assert (resize.op, resize.on_host) == ("ResizeBilinear", True)
    assert {check.op for check in explanation.checks} == {"GatherV2", "FloorDiv"}
    (called,) = explanation.host_ops
    assert "XLA's computes something else" in called.reason


def test_a_rewritten_op_on_the_host_is_one_step() -> None:
    def program(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
        y = tf.numpy_function(unique, [x], tf.float32)
        with hostcall.scope(route="partition"):
            return y, tf.negative(n * n)

    explanation = explain(program)
    assert [op.node for op in explanation.host_ops if op.op == "Mul"] == ["mul"]
    assert [op.op for op in explanation.rewritten] == ["Mul"]


def test_functions_that_are_called_twice_have_streams_of_random_numbers_of_their_own() -> None:
    @tf.function
    def noise(x: tf.Tensor) -> tf.Tensor:
        return x + tf.random.uniform([3], seed=3)

    @tf.function
    def distinct(x: tf.Tensor) -> tf.Tensor:
        return noise(x) + tf.reduce_sum(tf.numpy_function(unique, [x], tf.float32))

    for called, mode in ((noise, "compiled"), (distinct, "partitioned")):
        explanation = explain(lambda x, i, n, f=called: (f(sort(x)), f(x), tf.gather(n, i)))
        assert explanation.functions[0].mode == mode
        (drawn,) = explanation.rewritten
        assert (drawn.op, drawn.on_host) == ("RandomUniform", True)
        assert drawn.line == line_of(noise.python_function, "uniform")


def test_gradients_have_checks_of_their_own() -> None:
    def program(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(x, n)
        return sort(tape.gradient(y, x)), y

    assert {check.op for check in explain(program).checks} >= {"GatherV2", "UnsortedSegmentSum"}


def test_text_and_page_group_equal_ones() -> None:
    def program(x: tf.Tensor, i: tf.Tensor, n: tf.Tensor) -> Any:
        return sort(x), [tf.gather(x, i + k) for k in range(5)], tf.negative(n * n)

    explanation = explain(program)
    assert len(explanation.checks) == 5
    for shown in (str(explanation), explanation.to_html()):
        assert_says(shown, "Checks of values", "GatherV2, 5 ops", "raises, as in graph mode")
        assert_says(shown, "What XLA would compute differently", "Mul", "square of an integer")
        assert shown.count("GatherV2, 5 ops") == 1
    found = json.loads(json.dumps(explanation.to_dict()))
    assert len(found["checks"]) == 5
    assert found["rewritten"][0]["op"] == "Mul"


def test_functions_that_hostcall_leaves_alone_have_none() -> None:
    assert (explain(plain).checks, explain(plain).rewritten) == ((), ())
    assert [risk.op for risk in explain(plain).risks] == ["Mul"]
    assert "Checks" not in str(explain(plain))
    for unchanged in (taken, plain):
        uncompiled = explain(unchanged, jit_compile=None)
        assert (uncompiled.checks, uncompiled.rewritten) == ((), ())


def test_all_functions_are_taken_if_that_is_set() -> None:
    hostcall.configure(functions="all")
    assert [check.op for check in explain(plain).checks] == ["GatherV2"]
    assert [op.op for op in explain(plain).rewritten] == ["Mul"]
    assert explain(plain).risks == ()


def test_programs_with_the_semantics_of_xla_have_no_checks() -> None:
    hostcall.configure(semantics="xla")
    assert explain(taken).checks == ()
    assert explain(partitioned).checks == ()


def test_other_devices_have_none() -> None:
    concrete = tf.function(taken, jit_compile=True).get_concrete_function(X, I, N)
    library, name = explaining.library_of(concrete), concrete.function_def.signature.name
    device = "/job:localhost/replica:0/task:0/device:XLA_CPU:0"
    explanation = explaining.explain_library(library, name, device=device)
    assert (explanation.checks, explanation.rewritten) == ((), ())


def test_explanations_without_lines_count_the_ops() -> None:
    concrete = tf.function(taken, jit_compile=True).get_concrete_function(X, I, N)
    library, name = explaining.library_of(concrete), concrete.function_def.signature.name
    explanation = explaining.explain_library(library, name)
    assert {check.location for check in explanation.checks} == {""}
    assert_says(str(explanation), "GatherV2, 2 ops", "FloorDiv")


def test_the_compiler_is_asked_for_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an explanation lists is what the kernel hook finds in the same function."""
    found: list[str] = []
    find = failures.find_checks

    def noted(library: Any, entry: str) -> Any:
        checks = find(library, entry)
        found.extend(check.node.name for several in checks.values() for check in several)
        return checks

    program = tf.function(taken, jit_compile=True)
    expected = sorted(check.node for check in explain(taken).checks)
    monkeypatch.setattr(failures, "find_checks", noted)
    program(tf.ones([3]), tf.constant(1), tf.ones([4], tf.int32))
    assert sorted(found) == expected
