"""Compiled functions whose loops and branches TensorFlow writes as those of version 1."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall

v1 = tf.compat.v1
Body = Callable[[tf.Tensor], tf.Tensor]
VALUES = (2.0, 1.25)


def incremented(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda v: v + np.float32(1), [x], tf.float32), [])


def squared(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda v: v * v, [x], tf.float32), [])


def loop(x: tf.Tensor) -> tf.Tensor:
    """It takes as many turns as its values say, and its gradient takes lists of them."""
    start = tf.constant(2.0)
    return tf.while_loop(lambda n: n < 10.0, lambda n: n * x, [start], [tf.TensorShape(None)])[0]


def nested_loops(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, 0.5 * tf.while_loop(lambda z: z < 20.0, lambda z: z * x, [y])[0]

    return tf.while_loop(lambda i, _: i < 3, body, [tf.constant(0), x])[1]


def branches_in_a_loop(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, tf.cond(y > 4.0, lambda: y * x, lambda: squared(y) + x)

    return tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), x])[1]


def case(x: tf.Tensor) -> tf.Tensor:
    branches = [lambda: x, lambda: x * x, lambda: squared(x) * x]
    return tf.switch_case(tf.cast(x, tf.int32), branches)


def unoptimized() -> Any:
    """Return the options of TensorFlow's own tests: the session leaves functions as they are."""
    config = v1.ConfigProto(allow_soft_placement=True)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.constant_folding = 2  # off
    return config


def power(x: tf.Tensor) -> tf.Tensor:
    start = [0, tf.constant([1.0])]
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * x), start)[1]


def runs(body: Body, order: int, jit_compile: bool, config: Any = None) -> list[Any]:
    """Return a function's results in a session and its gradients up to an order, for each value."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [], name="x")
        found = [tf.reduce_sum(tf.function(body, jit_compile=jit_compile, autograph=False)(x))]
        for _ in range(order):
            found += tf.gradients(found[-1], x)
        with v1.Session(config=config) as session:
            return [session.run(found, {x: value}) for value in VALUES]


@pytest.mark.parametrize(
    ("body", "order"),
    [(branches_in_a_loop, 1), (case, 1), (loop, 2), (power, 2), (nested_loops, 2)],
)
def test_gradients_in_sessions(body: Body, order: int) -> None:
    """A session writes the loops of a backward function anew, before it comes to be compiled."""
    expected = runs(body, order, jit_compile=False)
    for config in (None, unoptimized()):
        actual = runs(body, order, jit_compile=True, config=config)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_training_through_a_loop() -> None:
    def trained(jit_compile: bool) -> Any:
        with tf.Graph().as_default(), v1.variable_scope("", use_resource=True):
            weight = v1.get_variable("weight", initializer=1.5)

            @tf.function(jit_compile=jit_compile, autograph=False)
            def loss(count: tf.Tensor) -> tf.Tensor:
                return tf.while_loop(
                    lambda i, _: i < count,
                    lambda i, y: (i + 1, y * weight),
                    [tf.constant(0), tf.constant(1.0)],
                )[1]

            count = v1.placeholder(tf.int32, [])
            step = v1.train.GradientDescentOptimizer(0.1).minimize(loss(count))
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for n in (3, 2):
                    session.run(step, {count: n})
                return session.run(weight)

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-6)


def of_version_1(body: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Body:
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [], name="x")
            y = v1.while_loop(lambda n: n < 10.0, lambda n: body(n, x), [tf.constant(2.0)])
            tf.identity(v1.cond(y > 12.0, lambda: y * 2.0, lambda: y * 3.0), name="z")
        finally:
            v1.enable_control_flow_v2()

    def imported(x: tf.Tensor) -> tf.Tensor:
        return tf.graph_util.import_graph_def(graph.as_graph_def(), {"x:0": x}, ["z:0"])[0]

    wrapped = v1.wrap_function(imported, [tf.TensorSpec([], tf.float32)])
    wrapped.original = graph  # which owns the callbacks
    return wrapped


OLD_BODIES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "no callback": lambda n, x: n * x,
    "a callback": lambda n, x: incremented(n * x),
    "sizes of the run": lambda n, x: n * x * tf.reduce_sum(tf.unique(tf.stack([n, n]))[0]) / n,
    "an op that is written anew": lambda n, x: tf.raw_ops.SeluGrad(gradients=x * n, outputs=n),
}


@pytest.mark.parametrize("body", OLD_BODIES)
def test_functions_with_loops_of_version_1_run_on_the_host(body: str) -> None:
    wrapped = of_version_1(OLD_BODIES[body])

    def program(x: tf.Tensor) -> tf.Tensor:
        y = incremented(x)
        return wrapped(y) + tf.reduce_sum(tf.unique(tf.stack([x, x, y]))[0])

    expected = tf.function(program)(tf.constant(0.5))
    np.testing.assert_allclose(
        tf.function(program, jit_compile=True)(tf.constant(0.5)), expected, rtol=1e-6
    )


def test_effects_in_and_after_a_loop_of_version_1_keep_their_order() -> None:
    said: list[str] = []

    def say(tag: str, x: tf.Tensor) -> tf.Tensor:
        y = tf.numpy_function(lambda v: (said.append(f"{tag} {v:g}"), v)[1], [x], tf.float32)
        return tf.ensure_shape(y, [])

    wrapped = of_version_1(lambda n, x: say("loop", n * x))

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return say("after", wrapped(say("before", x)))

    assert float(program(tf.constant(2.0))) == 32.0
    assert said == ["before 2", "loop 4", "loop 8", "loop 16", "after 32"]


def test_what_explains_such_a_function_says_why_it_is_on_the_host() -> None:
    wrapped = of_version_1(OLD_BODIES["a callback"])
    program = tf.function(lambda x: wrapped(x) + 1.0, jit_compile=True)
    explanation = hostcall.explain(program, tf.TensorSpec([], tf.float32))
    assert "TensorFlow 1's loops and branches" in str(explanation)
