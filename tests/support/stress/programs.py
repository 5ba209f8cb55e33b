"""Programs of one callback or several, in the ways in which TensorFlow may call them."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from hostcall._ops import tape_residuals
from tests.support.helpers import like as like


def double(x: Any) -> Any:
    return x * np.float32(2.0)


def numpy_function(function: Callable[..., Any], x: tf.Tensor, **options: Any) -> tf.Tensor:
    hostcall.declare(function, result=like, **options)
    return tf.numpy_function(function, [x], x.dtype)


def py_function(function: Callable[..., Any], x: tf.Tensor, **options: Any) -> tf.Tensor:
    hostcall.declare(function, result=like, **options)
    return tf.py_function(function, [x], x.dtype)


def callback(function: Callable[..., Any], x: tf.Tensor, **options: Any) -> tf.Tensor:
    return tf.stop_gradient(hostcall.callback(function, result=like, **options)(x))


def stateless(function: Callable[..., Any], x: tf.Tensor, **options: Any) -> tf.Tensor:
    # Else the log says under a tape that it has no gradient.
    return tf.stop_gradient(hostcall.callback(function, result=like, stateful=False, **options)(x))


KINDS = {kind.__name__: kind for kind in (numpy_function, py_function, callback, stateless)}

# How many elements, and how many callbacks. XLA runs the small program on the thread that called
# it; the large one has enough operations on enough elements to be run by several threads.
SIZES = {"small": (4, 1), "large": (100_000, 3)}


def values(size: str) -> tf.Tensor:
    return tf.range(1, 1 + SIZES[size][0], dtype=tf.float32)


def program(
    function: Callable[..., Any], kind: str, size: str, **options: Any
) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Calls `function`, which returns its argument times two, for x, x + 1, x + 2 and so on."""

    def run(x: tf.Tensor) -> list[tf.Tensor]:
        arguments = [x + float(i) + 0.0 * tf.sin(x) for i in range(SIZES[size][1])]
        return [KINDS[kind](function, argument, **options) for argument in arguments]

    return run


def compiled(run: Callable[..., Any]) -> Any:
    return tf.function(run, jit_compile=True, autograph=False)


def plain(run: Callable[..., Any]) -> Any:
    return tf.function(run, autograph=False)


def inside_plain(run: Callable[..., Any]) -> Any:
    inner = compiled(run)
    return tf.function(lambda x: inner(x), autograph=False)


def under_a_tape(function: Callable[..., Any]) -> Any:
    def call(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            return function(x)

    return call


# The ways to call a program, and the declarations of its function.
WAYS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "compiled": (compiled, {}),
    "inside a plain function": (inside_plain, {}),
    "plain": (plain, {}),
    "under a tape": (lambda run: under_a_tape(compiled(run)), {}),
    "with a limit": (compiled, {"timeout": 600.0}),
}


def check(results: Any, x: Any) -> None:
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, (np.asarray(x) + np.float32(i)) * np.float32(2.0))


def assert_no_states() -> None:
    if tape_residuals._residuals:
        gc.collect()
    kept = [getattr(r, "spec", r) for r in [*tape_residuals._residuals.values()]]
    assert not kept, [getattr(spec, "description", spec) for spec in kept]  # of another test, say
