"""Gradients of whole programs with py_functions, what they keep, Jacobians, and what has none."""

import functools
import gc
import itertools
import json
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.e2e import gradient_none_programs as programs
from tests.support.helpers import (
    assert_close,
    assert_says,
    each_mode,
    failure,
    gradient_of,
    jitted,
    like,
    outcome,
    plain,
)
from tests.support.stress.template import Template
from tests.support.threads import in_threads

X = tf.constant([0.5, -0.25])


def half_sine(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * tf.sin(x) + x


def loop_with_break(call: Any, x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(8):
        x = call(half_sine, x) * 1.5
        if x[0] > 3.0:
            break
    return x


def branches_in_a_loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    for i in tf.range(5):
        x = call(half_sine, x) if i % 2 == 0 else x * call(tf.cos, x)
    return x


def function_in_a_loop(call: Any, x: tf.Tensor) -> tf.Tensor:
    inner = tf.function(lambda x: call(half_sine, call(tf.cos, x)))
    for _ in tf.range(3):
        x = inner(x)
    return x


def mapped(call: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda row: call(half_sine, row), tf.stack([x, 2.0 * x, x + 1.0]))


def branch_without_a_call(call: Any, x: tf.Tensor) -> tf.Tensor:
    return call(half_sine, x) if x[0] < 0.0 else x * x


def inner_jitted_function(call: Any, x: tf.Tensor) -> tf.Tensor:
    inner = jitted(lambda x: call(half_sine, x) * 2.0)
    return inner(inner(x)) + inner(x)


def switched(call: Any, x: tf.Tensor) -> tf.Tensor:
    branches = [lambda: call(half_sine, x), lambda: call(tf.cos, x), lambda: x]
    return tf.switch_case(tf.size(x) - 1, branches)


def recomputed(call: Any, x: tf.Tensor) -> tf.Tensor:
    return tf.recompute_grad(lambda x: call(half_sine, call(tf.cos, x)))(x)


LOOPS = [loop_with_break, branches_in_a_loop, function_in_a_loop, mapped]
OTHERS = [branch_without_a_call, inner_jitted_function, switched, recomputed]


def value_and_slope(tape: tf.GradientTape, y: Any, args: Any) -> Any:
    return y, tape.gradient(y, args)


# XLA has no way out of a compiled program for what a loop keeps for its gradient.
WAYS = [
    *((g.inside, jitted, program) for program in LOOPS + OTHERS),
    *((g.outside, jitted, program) for program in OTHERS),
    *((g.outside, plain, program) for program in LOOPS + OTHERS),
]


@pytest.mark.parametrize(("place", "mode", "program"), WAYS)
def test_values_and_gradients(place: Any, mode: Any, program: Any) -> None:
    found = place(mode, functools.partial(program, g.by_py_function), value_and_slope)(X)
    expected = g.inside(plain, functools.partial(program, g.unwrapped), value_and_slope)(X)
    assert_close(found, expected, rtol=1e-5)


# What a recorded call of a py_function keeps: asked for twice, by many threads, or never.


def thrice_or_once(tape: tf.GradientTape, y: Any, args: Any) -> Any:
    return [tape.gradient(y, args, output_gradients=factor * y) for factor in (3.0, 1.0)]


def row_by_row(tape: tf.GradientTape, y: Any, args: Any) -> Any:
    return tape.jacobian(y, args, experimental_use_pfor=False)


@each_mode
@g.each_place
@pytest.mark.parametrize("ask", [thrice_or_once, row_by_row])
def test_a_persistent_tape_gives_the_same_gradient_twice(mode: Any, place: Any, ask: Any) -> None:
    """A plain graph may refuse; a wrong gradient it may not give."""
    program = place(mode, functools.partial(g.by_py_function, half_sine), ask)
    if mode is plain and isinstance(outcome(program, X), type):
        assert_says(
            failure(program, X), "compute all of them at once there, or compile the function"
        )
    else:
        g.assert_close(program(X), place(g.eagerly, half_sine, ask)(X))


@each_mode
def test_threads_that_share_a_function_do_not_mix_their_gradients(mode: Any) -> None:
    def sixth_power(x: tf.Tensor) -> tf.Tensor:
        return g.by_py_function(lambda x: x**3, g.by_py_function(lambda x: x**2, x))

    slope = mode(functools.partial(gradient_of, sixth_power))
    slope(tf.zeros([3]))

    def work(seed: int) -> None:
        for i in range(20):
            x = tf.fill([3], 1.0 + seed + i / 10.0)
            np.testing.assert_allclose(slope(x), 6.0 * x**5, rtol=1e-5)

    in_threads(8, work)


@each_mode
def test_a_callback_that_runs_a_gradient_program_itself(mode: Any) -> None:
    inner = mode(lambda x: gradient_of(functools.partial(g.by_py_function, tf.square), x))

    @mode
    def outer(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = g.by_py_function(lambda x: x**3, x)
        between = tf.numpy_function(lambda y: inner(y).numpy(), [y], tf.TensorSpec([2], tf.float32))
        return tape.gradient(y, x), between

    for _ in range(3):
        slope, between = outer(X)
        np.testing.assert_allclose(slope, 3.0 * X**2, rtol=1e-6)
        np.testing.assert_allclose(between, 2.0 * X**3, rtol=1e-6)


class Kept:
    """Something that a recorded call keeps."""


def square_that_keeps() -> tuple[Any, weakref.WeakSet[Kept]]:
    """A square whose gradient holds a Kept, and those that are alive."""
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    @tf.custom_gradient
    def square(x: tf.Tensor) -> Any:
        kept = Kept()
        alive.add(kept)
        return x * x, lambda upstream: [kept, 2.0 * x * upstream][1]

    return square, alive


@each_mode
@pytest.mark.parametrize("asked", ["inside", "outside", "never"])
def test_nothing_is_kept_once_a_gradient_can_no_longer_be_asked_for(mode: Any, asked: str) -> None:
    square, alive = square_that_keeps()

    def forward(x: tf.Tensor) -> tf.Tensor:
        return g.by_py_function(square, g.by_py_function(square, x))

    function = mode(lambda x: gradient_of(forward, x) if asked == "inside" else forward(x))
    for _ in range(5):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = function(X)
        if asked == "outside":
            np.testing.assert_allclose(tape.gradient(y, X), 4.0 * X**3)
        del tape, y
        gc.collect()
        assert not alive


@each_mode
def test_nothing_is_kept_where_a_branch_decides_not_to_ask(mode: Any) -> None:
    square, alive = square_that_keeps()

    def squared_or_stopped(x: tf.Tensor) -> Any:
        y = g.by_py_function(square, x)
        return tf.stop_gradient(y) * x if x[0] > 0.0 else y

    program = mode(lambda x: gradient_of(squared_or_stopped, x))
    for _ in range(3):
        np.testing.assert_array_equal(program(X), X**2)
        np.testing.assert_array_equal(program(-X), -2.0 * X)
    gc.collect()
    assert not alive


# Jacobians through py_functions and callbacks: one call for all rows.

XS = tf.constant([[1.0, 2.0], [3.0, 5.0], [7.0, 4.0]])


class Cube:
    """x³ + a sum over the last axis, and how often it is computed."""

    def __init__(self, **how: Any) -> None:
        self.calls = 0
        hostcall.declare(self, result=like, **how)

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return cubed(x)

    def op(self, x: Any) -> Any:
        return tf.py_function(self, [x], tf.float32)


def cubed(x: Any) -> Any:
    return x * x * x + tf.reduce_sum(x, -1, keepdims=True)


def jacobian(function: Any, x: Any, way: str = "jacobian") -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return getattr(tape, way)(y, x)


def of_a_jacobian(function: Any, x: Any) -> Any:
    weights = tf.reshape(tf.range(36.0), [3, 2, 3, 2])
    return gradient_of(lambda x: tf.reduce_sum(jacobian(function, x) * weights), x)


JACOBIANS: dict[str, Callable[[Any, tf.Tensor], Any]] = {
    "jacobian": jacobian,
    "batch jacobian": functools.partial(jacobian, way="batch_jacobian"),
    "hessian": lambda function, x: jacobian(lambda x: gradient_of(function, x), x),
    "derivative of a jacobian": of_a_jacobian,
    "each_element": lambda function, xs: tf.vectorized_map(lambda x: jacobian(function, x), xs),
    "second_of_each_element": lambda function, xs: tf.vectorized_map(
        lambda x: gradient_of(lambda x: gradient_of(function, x), x), xs
    ),
    "mapped function": lambda function, xs: jacobian(lambda x: tf.vectorized_map(function, x), xs),
}
OF_PURE = [*JACOBIANS][:5]


@pytest.mark.parametrize(
    ("name", "mode", "pure"),
    [
        *itertools.product(JACOBIANS, [plain, jitted, g.eagerly], [False]),
        *itertools.product(OF_PURE, [plain, jitted], [True]),
    ],
)
def test_jacobians_make_one_call(name: str, mode: Any, pure: bool) -> None:
    cube, program = Cube(pure=pure, vmap_method="expand_dims"), JACOBIANS[name]
    np.testing.assert_allclose(mode(lambda x: program(cube.op, x))(XS), program(cubed, XS))
    assert cube.calls == (2 if pure else 1)


@each_mode
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_of_a_callback_with_a_gradient(mode: Any, method: Any) -> None:
    shapes: list[Any] = []

    def back(x: Any, dy: Any) -> Any:
        shapes.append((x.shape, dy.shape))
        return 3 * x * x * dy

    of_gradient = hostcall.callback(back, result=like, vmap_method=method)
    call = hostcall.callback(lambda x: x**3, result=like, grad=lambda i, r, u: of_gradient(i[0], u))
    np.testing.assert_allclose(
        mode(lambda x: jacobian(call, x))(XS[0]), jacobian(lambda x: x**3, XS[0])
    )
    expected = {
        "sequential": [((2,), (2,))] * 2,
        "expand_dims": [((1, 2), (2, 2))],
        "broadcast_all": [((2, 2), (2, 2))],
    }
    assert shapes == expected[method]


# What has no gradient: None or zeros, as in a process with stock TensorFlow, or an error.


def by_callback(function: Any, *inputs: Any, dtypes: Any = tf.float32, **how: Any) -> Any:
    specs = tf.nest.map_structure(lambda dtype: tf.TensorSpec([2], dtype), dtypes)
    return hostcall.callback(function, result=specs, **how)(*inputs)


CALLBACKS = types.SimpleNamespace(
    numpy=functools.partial(by_callback, stateful=False),
    eager=functools.partial(by_callback, kind="eager"),
)
OPS = {"script ops": programs.Ops(), "callbacks": CALLBACKS}
each_op = pytest.mark.parametrize("ops", OPS.values(), ids=OPS)

STRINGS = ["string_input", "string_result"]
WITHOUT_STRINGS = [name for name in programs.PROGRAMS if name not in STRINGS]


@pytest.fixture(scope="module")
def stock(fresh_python: Template) -> Any:
    file = programs.__file__
    ended = fresh_python.run_program(Path(file).read_text(), file)
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])


def outcomes(mode: Any, ops: Any, name: str) -> Any:
    program = programs.PROGRAMS[name]
    return [programs.outcome(mode, inside, ops, program) for inside in (True, False)]


def assert_same(actual: Any, expected: Any) -> None:
    """The same gradients, or an error of the same class."""
    for one, other in zip(actual, expected, strict=True):
        if isinstance(other, str):
            assert one.partition(":")[0] == other.partition(":")[0]
        else:
            assert one == other


@pytest.mark.pairwise
@each_op
@pytest.mark.parametrize("name", WITHOUT_STRINGS)
@pytest.mark.parametrize(
    ("mode", "as_stock"), [(jitted, "in a graph"), (plain, "in a graph"), (g.eagerly, "eagerly")]
)
def test_programs_have_what_they_have_in_stock(
    stock: Any, mode: Any, as_stock: str, ops: Any, name: str
) -> None:
    assert_same(outcomes(mode, ops, name), stock[as_stock][name])


@each_op
@pytest.mark.parametrize("name", STRINGS)
def test_strings_are_an_error_that_says_so_where_xla_compiles(ops: Any, name: str) -> None:
    with hostcall.scope(route="custom_call"):
        refused = outcomes(jitted, ops, name)
    for error in refused:
        assert error.startswith("InvalidArgumentError: ")
        assert "cannot enter or leave an XLA program" in error


@each_op
@pytest.mark.parametrize("mode", [g.eagerly, plain, jitted])
@pytest.mark.parametrize("name", STRINGS)
def test_elsewhere_strings_do_not_disturb_the_gradient(mode: Any, ops: Any, name: str) -> None:
    expected = (2.0 * programs.X).numpy().tolist()
    assert outcomes(mode, ops, name) == [[expected, None, 0]] * 2


def test_the_error_of_a_gradient_is_that_of_python() -> None:
    for error in outcomes(jitted, OPS["script ops"], "gradient_that_raises"):
        assert "ValueError: no gradient here" in error
