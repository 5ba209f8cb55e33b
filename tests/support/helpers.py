"""Helpers that several test files share."""

import gc
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.errors import DetailedError as DetailedError
from tests.support.errors import assert_says as assert_says
from tests.support.errors import raising as raising


def plain(function: Callable[..., Any]) -> Any:
    """The function as a graph that TensorFlow runs without XLA, on the CPU."""
    return _OnCpu(tf.function(function)) if DEVICE else tf.function(function)


class _OnCpu:
    """A function that runs on the CPU: XLA compiles all that runs on the stand-in."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with tf.device("/device:CPU:0"):
            return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def jitted(function: Callable[..., Any]) -> Any:
    """The function as one XLA program."""
    return tf.function(function, jit_compile=True)


MODES = [plain, jitted]
each_mode = pytest.mark.parametrize("mode", MODES)


def partitioned(function: Callable[..., Any]) -> Any:
    """The function as compiled clusters around its callbacks."""

    def on_partition_route(*args: Any) -> Any:
        with hostcall.scope(route="partition"):
            return function(*args)

    return jitted(on_partition_route)


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def stateless_py_func(function: Any, inp: Any, Tout: Any) -> Any:  # noqa: N803 - TensorFlow's name
    return tf.compat.v1.py_func(function, inp, Tout, stateful=False)


# The ops whose functions take arrays, and all of them.
NUMPY_OPS = [tf.numpy_function, tf.compat.v1.py_func, stateless_py_func]
OPS = [*NUMPY_OPS, tf.py_function]
each_op = pytest.mark.parametrize("op", OPS)
STATEFUL_OPS = [op for op in OPS if op is not stateless_py_func]
each_stateful_op = pytest.mark.parametrize("op", STATEFUL_OPS, ids=lambda op: op.__name__)
# The ops of TensorFlow's public interface, and those that are decorators.
PUBLIC_OPS = [tf.numpy_function, tf.py_function, tf.compat.v1.py_func]
each_public_op = pytest.mark.parametrize(
    "op", PUBLIC_OPS, ids=["numpy_function", "py_function", "py_func"]
)
each_decorator = pytest.mark.parametrize(
    "op", PUBLIC_OPS[:2], ids=["numpy_function", "py_function"]
)


def to_numpy(structure: Any) -> Any:
    def array(value: Any) -> np.ndarray:
        # Asking the tensor itself: np.asarray cannot read bfloat16 ones of rank 0.
        return np.asarray(value.numpy() if isinstance(value, tf.Tensor) else value)

    return tf.nest.map_structure(array, structure)


def like(x: Any, *_: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


def on_two(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A program of one callback, from two floats to two floats."""
    return lambda x: tf.ensure_shape(op(function, [x], tf.float32), [2])


def distinct(x: tf.Tensor) -> tf.Tensor:
    """Return the distinct values, as a vector whose size depends on the values."""
    return tf.numpy_function(np.unique, [x], x.dtype)


def numbers(n: tf.Tensor) -> tf.Tensor:
    """As many as are asked for."""
    return tf.numpy_function(lambda k: np.arange(k, dtype=np.float32), [n], tf.float32)


def compilations(name: str) -> list[int]:
    """Return the compilations of each living cluster of the functions of that name."""
    gc.collect()
    rows = hostcall.stats().compilations
    return [row.compilations for row in rows if row.cluster.startswith(f"__inference_{name}_")]


def beside(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return the program with a callback, so that hostcall takes it."""

    def run(*args: Any) -> Any:
        tf.numpy_function(lambda: None, [], [])
        return program(*args)

    return run


def called(function: Any, x: Any, op: Any = tf.numpy_function) -> Any:
    """The call of a function whose result is like its argument."""
    return tf.ensure_shape(op(function, [x], x.dtype), x.shape)


def line_of(function: Any, text: str) -> int:
    """The line of a function's source that holds a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def touch(*tensors: tf.Tensor) -> None:
    tf.numpy_function(lambda *_: None, tensors, [])


def failure(function: Callable[..., Any], *args: Any) -> tf.errors.OpError:
    """The error of TensorFlow's that a call raises."""
    with pytest.raises(tf.errors.OpError) as caught:
        function(*args)
    return caught.value


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """Make a call, and return its results as arrays, or the class of its error."""
    try:
        return to_numpy(function(*args))
    except Exception as error:
        return type(error)


def gradient_of(function: Callable[..., Any], x: Any, upstream: Any = None) -> Any:
    """Return what a tape around a call says is its gradient."""
    return value_and_gradient(function, x, upstream)[1]


def value_and_gradient(function: Callable[..., Any], x: Any, upstream: Any = None) -> Any:
    """The result of a call, and what a tape around it says is its gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, output_gradients=upstream)


def assert_as_plain(program: Callable[..., Any], *args: Any) -> None:
    """Compile the program; its results are bitwise those of the plain graph."""
    assert_same(to_numpy(jitted(program)(*args)), to_numpy(plain(program)(*args)))


def _in_a_session(inner: Callable[[tf.Tensor], Any], x: tf.Tensor) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = inner(tf.constant(x.numpy()))
        return tf.nest.pack_sequence_as(results, session.run(tf.nest.flatten(results)))


# The callers of a compiled function.
CALLERS: dict[str, Callable[[Callable[[tf.Tensor], Any], tf.Tensor], Any]] = {
    "a plain function": lambda inner, x: plain(lambda x: inner(x))(x),
    "a compiled function": lambda inner, x: jitted(lambda x: inner(x + 1.0))(x - 1.0),
    "a session": _in_a_session,
}
each_caller = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)


def assert_as_plain_called_by(caller: Any, program: Callable[..., Any], x: tf.Tensor) -> None:
    """Compile the program; called so, it has bitwise the results of the plain graph."""
    assert_same(to_numpy(caller(jitted(program), x)), to_numpy(plain(program)(x)))


def assert_equal(actual: Any, expected: Any) -> None:
    """Both hold equal values in their leaves."""
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def assert_close(actual: Any, expected: Any, rtol: float = 1e-6, atol: float = 0.0) -> None:
    """Both hold numbers in their leaves that are close."""
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def assert_alike(actual: Any, expected: Any, rtol: float = 1e-6, atol: float = 0.0) -> None:
    """Both hold tensors in their leaves with the same shapes and dtypes that are close."""
    tf.nest.assert_same_structure(actual, expected)
    pairs = list(zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True))
    assert [(one.shape, one.dtype) for one, _ in pairs] == [(y.shape, y.dtype) for _, y in pairs]
    assert_close(actual, expected, rtol, atol)


def assert_same(actual: Any, expected: Any) -> None:
    """Both are the same class, or the same structure of bitwise equal arrays."""
    if isinstance(actual, type) or isinstance(expected, type):
        assert actual is expected
        return
    tf.nest.assert_same_structure(actual, expected)
    for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.dtype == object:  # strings
            assert one.tolist() == other.tolist()
            continue
        assert one.tobytes() == other.tobytes(), f"{one} != {other}"


def returning(op: Any, value: Any, tout: Any, shapes: Any) -> Any:
    """A program whose callback returns `value()`; `shapes` are those of the results."""

    def program() -> Any:
        results = tf.nest.flatten(op(value, [], tout))
        return [tf.ensure_shape(r, shape) for r, shape in zip(results, shapes, strict=True)]

    return program


class Returns:
    """A function of its own each time, that returns numbers in a shape that is told later."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __call__(self, *_: Any) -> np.ndarray:
        return np.arange(np.prod(self.shape), dtype=np.float32).reshape(self.shape)
