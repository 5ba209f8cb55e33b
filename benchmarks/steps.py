"""The Python functions of the benchmarks, and the programs that call them."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import tensorflow as tf

import hostcall

Array = np.ndarray
Step = Callable[[tf.Tensor], tf.Tensor]
Function = Callable[[Array], Array]


def identity(v: Array) -> Array:
    """Return the argument, which measures only the way to Python and back."""
    return v


def add_one(v: Array) -> Array:
    """Add 1, which measures the way to Python and back beside a little work."""
    return v + np.float32(1)


def add_one_to_tensor(v: tf.Tensor) -> tf.Tensor:
    """Add 1 in py_function: an op of eager mode, which costs far more than NumPy's."""
    return v + 1.0


def bare(function: Function, x: Array) -> Array:
    """Call the function on a copy of the array, which is the least that any callback can cost."""
    return function(x.copy())


def bare_with_result(function: Function, x: Array) -> Array:
    """Copy the result, too, for programs that need the result in their own memory."""
    return function(x.copy()).copy()


def borrowed(v: Array) -> Array:
    """Return the argument, which is a borrowed view."""
    return v


def written(v: Array, out: Array) -> None:
    """Copy the argument into the result; both are borrowed views."""
    np.copyto(out, v)


hostcall.declare(borrowed, borrow=True)
hostcall.declare(written, borrow=True, out=True)


def bare_borrowed(function: Function, x: Array) -> Array:
    """Call the function on the array itself; only the result is copied."""
    return function(x).copy()


def bare_written(function: Callable[..., None], x: Array) -> Array:
    """Call a function that writes its result itself; only memory for the result is needed."""
    out = np.empty_like(x)
    function(x, out=out)
    return out


def script_op(op: Callable[..., tf.Tensor], function: Callable[..., object]) -> Step:
    """Return a step that calls the function; the result has the shape of the argument."""

    def step(x: tf.Tensor) -> tf.Tensor:
        y = op(function, [x], tf.float32)
        y.set_shape(x.shape)
        return y

    return step


def numpy_step(function: Function) -> Step:
    return script_op(tf.numpy_function, function)


def eager_step(function: Callable[[tf.Tensor], tf.Tensor]) -> Step:
    return script_op(tf.py_function, function)


def compiled(program: Step, x: tf.Tensor) -> Callable[[], tf.Tensor]:
    return partial(tf.function(program, jit_compile=True), x)


def in_graph(program: Step, x: tf.Tensor) -> Callable[[], tf.Tensor]:
    return partial(tf.function(program), x)


def loop_of(step: Step, count: int) -> Step:
    """Return a program of `count` steps, each on the result of the one before."""
    return lambda x: tf.while_loop(
        lambda i, _: i < count, lambda i, y: (i + 1, step(y)), (tf.constant(0), x)
    )[1]


@contextlib.contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Silence the warnings of a logger about things that a benchmark does on purpose."""
    level = logging.getLogger(logger).level
    logging.getLogger(logger).setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(level)


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Leave compiled functions to TensorFlow alone."""
    hostcall.disable()
    try:
        yield
    finally:
        hostcall.enable()
