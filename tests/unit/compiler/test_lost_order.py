"""hostcall._compiler.ordering: loops and branches that XLA would not keep in order."""

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import _versions
from hostcall._callbacks import settings, tape_residuals
from hostcall._compiler import ordering
from hostcall._tf import function_defs
from hostcall_runtime._errors import LoweringError

X = tf.constant([1.0, 2.0])


class Log:
    """Python functions that tell in which order they were called."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, name: str) -> Callable[[Any], Any]:
        def add(x: Any) -> Any:
            self.said.append(name)
            return x

        return lambda x: tf.ensure_shape(tf.numpy_function(add, [x], x.dtype), x.shape)


def call_and_loop(log: Log, x: tf.Tensor) -> tf.Tensor:
    log.say("before")(x)
    for _ in tf.range(2):
        x = log.say("in")(x)
    return x


def loop_and_call(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = x + 1.0
        log.say("in")(x)
    log.say("after")(X)
    return x


def call_and_branch(log: Log, x: tf.Tensor) -> tf.Tensor:
    log.say("before")(x)
    return tf.cond(x[0] > 0.0, lambda: log.say("then")(x), lambda: log.say("else")(x))


def two_loops(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = log.say("first")(x)
    for _ in tf.range(2):
        x = log.say("second")(x)
    return x


def loop_in_a_function(log: Log, x: tf.Tensor) -> tf.Tensor:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = log.say("in")(x)
        return x

    log.say("before")(x)
    return inner(x)


def call_and_loop_in_a_loop(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = call_and_loop(log, x)
    return x


def condition(log: Log, x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda x: log.say("cond")(x)[0] < 3.0, lambda x: (x + 1.0,), (x,))[0]


def loop(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = log.say("a")(x)
        log.say("b")(x)
    return x + 1.0


def loop_in_a_loop(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        for _ in tf.range(2):
            x = log.say("in")(x)
    return x


def calls(log: Log, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(2):
        x = x + 1.0
    return log.say("b")(log.say("a")(x))


def pure_calls_beside_a_loop(log: Log, x: tf.Tensor) -> tf.Tensor:
    y = hostcall.callback(lambda x: x, result=X, stateful=False)(x)
    return loop(log, x) + y


LOSING = (
    *(call_and_loop, loop_and_call, call_and_branch, two_loops, loop_in_a_function),
    *(call_and_loop_in_a_loop, condition),
)
KEEPING = (loop, loop_in_a_loop, calls, pure_calls_beside_a_loop)
each_that_loses = pytest.mark.parametrize("program", LOSING, ids=lambda run: run.__name__)
each = pytest.mark.parametrize("program", [*LOSING, *KEEPING], ids=lambda run: run.__name__)


@pytest.fixture
def an_older_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_versions, "keeps_order", lambda _: False)


@each
def test_an_ordered_library_is_left_alone(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_versions, "keeps_order", lambda _: True)
    traced = tf.function(lambda x: program(Log(), x)).get_concrete_function(X)
    library = function_defs.library_of(traced, traced.graph.as_graph_def())
    entry = traced.function_def.signature.name
    assert ordering.marked(library, entry) is library
    assert ordering.is_kept(library, entry)


@pytest.mark.usefixtures("an_older_xla")
@each
def test_the_order_is_that_of_eager_execution(program: Any) -> None:
    eager, compiled = Log(), Log()
    wanted = tf.function(lambda x: program(eager, x))(X)
    got = tf.function(lambda x: program(compiled, x), jit_compile=True)(X)
    assert compiled.said == eager.said
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.usefixtures("an_older_xla")
def test_nothing_is_kept_for_gradients_that_nobody_asks_for() -> None:
    """A loop of clusters that calls Python, whose handle goes from one cluster to another."""
    slope = hostcall.callback(
        lambda x, upstream: upstream * tf.cos(x), result=lambda x, upstream: x, kind="eager"
    )
    call = hostcall.callback(np.sin, result=lambda x: x, grad=lambda i, r, up: slope(i[0], up))

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = call(2.0 * x)
        return tape.jacobian(y, x)

    kept = len(tape_residuals._residuals)
    np.testing.assert_allclose(program(X), np.diag(2.0 * np.cos(2.0 * X)), rtol=1e-6)
    assert hostcall.explain(program, X).clusters
    assert len(tape_residuals._residuals) == kept


@pytest.mark.usefixtures("an_older_xla")
@each
def test_the_explanation_says_what_is_partitioned(program: Any) -> None:
    function = tf.function(lambda x: program(Log(), x), jit_compile=True)
    said = re.sub(r"[\s│]+", " ", str(hostcall.explain(function, X)))
    assert ("before TensorFlow 2.20 does not keep the order" in said) == (program in LOSING)


@pytest.mark.usefixtures("an_older_xla")
@each_that_loses
@pytest.mark.parametrize("by", ["route", "uncompilable"])
def test_what_must_stay_whole(program: Any, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    if by == "uncompilable":
        monkeypatch.setattr(settings, "uncompilable", lambda: settings.ERROR)
    function = tf.function(lambda x: program(log, x), jit_compile=True)
    with (
        hostcall.scope(route="custom_call" if by == "route" else "auto"),
        pytest.raises((LoweringError, tf.errors.InvalidArgumentError), match=r"TensorFlow 2\.20"),
    ):
        function(X)
    assert log.said == []


@pytest.mark.usefixtures("an_older_xla")
def test_one_program_with_regions_is_not_made_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        tf.print("before", output_stream=sys.stdout)
        for _ in tf.range(2):
            tf.print("in", output_stream=sys.stdout)
            x = x + 1.0
        return x

    np.testing.assert_array_equal(program(X), X + 2.0)
    assert capfd.readouterr().out == "before\nin\nin\n"
    assert not any(function.in_program for function in hostcall.explain(program, X).host_ops)
