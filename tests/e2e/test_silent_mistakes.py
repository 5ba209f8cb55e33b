"""Mistakes that raise no error: the log and the reports name them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions import declarations
from hostcall._ops.emit import missing_gradients
from tests.support.helpers import (
    MODES,
    assert_says,
    eagerly,
    gradient_of,
    jitted,
    partitioned,
    plain,
)

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([2], tf.float32)
FILE = Path(__file__).name


@pytest.fixture(autouse=True)
def _told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_late", set())
    monkeypatch.setattr(missing_gradients, "_told", set())


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "hostcall"]


@pytest.mark.parametrize("mode", MODES)
def test_a_declaration_that_comes_after_a_trace_is_logged_once(
    mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def function(x: Any) -> Any:
        return x

    program = mode(lambda x: tf.numpy_function(function, [x], SPEC))
    hostcall.declare(function, pure=True)
    program(X)
    assert _logged(caplog) == []
    hostcall.declare(function, pure=True)  # the same once more
    assert _logged(caplog) == []
    for _ in range(2):
        hostcall.declare(function, timeout=60.0)
        (message,) = _logged(caplog)
    line = function.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}) comes after", "called at", f"{FILE}:{line + 3}")


def test_a_declaration_of_another_function_or_before_any_trace_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Model:
        def run(self, x: Any) -> Any:
            return x

    one, other = Model(), Model()
    program = jitted(lambda x: tf.numpy_function(one.run, [x], SPEC))
    program(X)
    hostcall.declare(other.run, result=SPEC)
    tf.numpy_function(other.run, [X], SPEC)  # an eager call leaves no graph
    hostcall.declare(other.run, timeout=60.0)
    assert _logged(caplog) == []
    hostcall.declare(one.run, result=SPEC)
    assert len(_logged(caplog)) == 1


def test_a_declaration_after_a_trace_that_is_gone_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function(x: Any) -> Any:
        return np.float32(x)

    def mapped(x: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(lambda e: tf.numpy_function(function, [e], SCALAR), x, warn=False)

    np.testing.assert_array_equal(mapped(X), X)  # in eager mode TensorFlow traces it each time
    hostcall.declare(function, vmap_method="expand_dims")
    jitted(mapped)(X)  # is dropped
    hostcall.declare(function, vmap_method="broadcast_all")
    assert _logged(caplog) == []
    program = jitted(mapped)
    program(X)
    hostcall.declare(function, vmap_method="sequential")
    assert len(_logged(caplog)) == 1


def halved(x: Any) -> Any:
    return np.asarray(x / 2, np.float32)


@pytest.mark.parametrize("build", [eagerly, plain, jitted, partitioned])
@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_of_a_callback_without_one_is_logged(
    build: Any, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    half = hostcall.callback(halved, result=SPEC)

    def program(x: tf.Tensor) -> tf.Tensor:
        return x * half(x)

    run = build(lambda x: gradient_of(program, x)) if inside else build(program)
    found = run(X) if inside else gradient_of(run, X)
    np.testing.assert_array_equal(found, X / 2.0)  # as if the callback returned a constant
    (message,) = _logged(caplog)
    line = halved.__code__.co_firstlineno
    assert_says(message, f"{FILE}:{line}", "grad=lambda inputs, results, upstream: ...")


@pytest.mark.parametrize("build", [eagerly, plain, jitted])
def test_where_no_gradient_is_meant_nothing_is_logged(
    build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    half = hostcall.callback(halved, result=SPEC)
    with_one = hostcall.callback(halved, result=SPEC, grad=lambda i, r, dy: dy / 2.0)
    count = hostcall.callback(lambda n: np.float32(n), result=tf.TensorSpec([], tf.float32))

    def program(x: tf.Tensor) -> tf.Tensor:
        one = tf.numpy_function(halved, [x], SPEC)  # as in stock TensorFlow
        return x * tf.stop_gradient(half(x)) + with_one(x) + one + count(tf.size(x))

    np.testing.assert_array_equal(gradient_of(build(program), X), X / 2.0 + 0.5)
    half(X)
    assert _logged(caplog) == []


def test_an_eager_vectorized_map_logs_a_missing_gradient_under_a_tape_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    half = hostcall.callback(halved, result=SCALAR, vmap_method="sequential")

    def mapped(x: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(lambda element: element * half(element), x)

    np.testing.assert_array_equal(mapped(X), X * X / 2.0)
    assert _logged(caplog) == []
    np.testing.assert_array_equal(gradient_of(mapped, X), X / 2.0)
    (message,) = _logged(caplog)
    assert_says(message, f"{FILE}:{halved.__code__.co_firstlineno}", "where a tape", "asks for it")


class Counter(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(1.0)
        self.other = tf.Variable(1.0)

    def read(self) -> tf.Tensor:
        return self.count.read_value() + self.other.read_value()


SCALAR = tf.TensorSpec([], tf.float32)


@pytest.mark.parametrize("inside", ["at once", "branch", "loop", "call"])
def test_explain_names_a_variable_that_is_read_and_assigned(
    inside: str,
) -> None:
    counter, more = Counter(), tf.constant(2.0)

    def add() -> None:
        counter.count.assign_add(more)

    def assign() -> None:
        if inside == "branch":
            tf.cond(more > 1.0, lambda: counter.count.assign_add(more), lambda: more)
        elif inside == "loop":
            for _ in tf.range(1):
                counter.count.assign_add(more)
        elif inside == "call":
            tf.function(add)()
        else:
            add()

    def program() -> Any:
        assign()
        return tf.py_function(counter.read, [], SCALAR)

    with hostcall.scope(route="custom_call"):
        compiled = jitted(program)
        notes = [note for note in hostcall.explain(compiled).notes if "the variable" in note]
        assert float(compiled()) == 2.0  # and 4 in a plain graph
    (note,) = notes
    assert_says(note, f"{FILE}:{Counter.read.__code__.co_firstlineno}", "self.count,", "argument")


def test_explain_names_no_variable_that_is_only_read() -> None:
    counter = Counter()
    v = tf.Variable(1.0)

    def program(x: tf.Tensor) -> Any:
        v.assign_add(x)
        return tf.py_function(counter.read, [], SCALAR) + counter.count

    notes = hostcall.explain(jitted(program), SCALAR).notes
    assert [note for note in notes if "the variable" in note] == []


def test_a_check_suggests_to_pass_variables() -> None:
    v = tf.Variable([1.0, 2.0])
    scale = hostcall.callback(lambda x: x * v, result=SPEC, kind="eager")
    report = hostcall.check(scale, X)
    (line,) = [one.line for one in report.suggestions if "assigns the variable" in one.what]
    assert line == "pass v as an argument"


def test_explain_names_the_variables_of_a_keras_model(auto_route: None) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    look = hostcall.callback(lambda x: model(x), result=tf.TensorSpec([1, 1]), kind="eager")

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        variables = [one.value for one in model.trainable_variables]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(gradient)
        return look(x)

    notes = hostcall.explain(step, tf.TensorSpec([1, 2], tf.float32)).notes
    assert len([note for note in notes if "refers to the variable model." in note]) == 2
