"""TensorFlow functions that raise errors for some values, each with what it is called with."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.exported import user_code
from tests.support.exported.exported import F3, I, X

pure = hostcall.callback(user_code.half, result=lambda x: x, stateful=False)


class Failing(NamedTuple):
    """A function, its arguments, those for which it raises, the op that does, and notes before."""

    function: Callable[..., Any]
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    op: str
    notes: int = 0

    @property
    def specs(self) -> list[tf.TensorSpec]:
        return [tf.TensorSpec(np.shape(value), np.asarray(value).dtype) for value in self.good]

    @property
    def place(self) -> str:
        """The `file:line` that raises, which has a comment."""
        lines, first = inspect.getsourcelines(self.function)
        (line,) = (number for number, text in enumerate(lines, first) if "# raises" in text)
        return f"{inspect.getsourcefile(self.function)}:{line}"


def note(x: tf.Tensor) -> None:
    tf.numpy_function(user_code.note, [x], [])


def gather(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    note(x)
    y = tf.gather(x, i)  # raises
    note(y)
    return y


def before_pure_calls(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    y = tf.repeat(tf.gather(x, i), 3)  # raises
    return pure(pure(y) + pure(2.0 * y)) + x


def in_loop(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    i = tf.constant(0)
    while i < 3:
        note(x)
        quotient = 6 // (n - i)  # raises
        x += tf.cast(quotient, x.dtype)
        i += 1
    return x, i


def in_branch(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    y = tf.cond(i > 0, lambda: x / tf.gather(x, i), lambda: x)  # raises
    note(y)
    return y


def beside_a_call(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    note(x)
    with_call = lambda: (note(x), x)[1]  # noqa: E731 - its side is alone with its effect
    y = tf.cond(i > 0, lambda: tf.gather(x, i[None] * [1, 1, 1]), with_call)  # raises
    return y + 1.0


def of_many(x: tf.Tensor, i: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    indices = i // tf.range(1, 6000, dtype=i.dtype)
    sums = tf.reduce_sum(tf.gather(x, indices))  # raises
    return sums, pure(x)


def asserted(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    tf.debugging.Assert(n > 0, ["it has to be positive", n])  # raises
    note(x)
    return x


def of_gradient(x: tf.Tensor, i: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.gather(tf.sin(x), i) ** 2  # raises
    gradient = tf.convert_to_tensor(tape.gradient(y, x))
    note(gradient)
    return gradient


FAILING = {
    "gather": Failing(gather, (X, np.int32(1)), (X, np.int32(3)), "GatherV2", notes=1),
    "before_pure_calls": Failing(
        before_pure_calls, (X, np.int32(1)), (X, np.int32(-1)), "GatherV2"
    ),
    "in_loop": Failing(in_loop, (X, np.int32(3)), (X, np.int32(1)), "FloorDiv", notes=2),
    "in_branch": Failing(in_branch, (X, np.int32(-9)), (X, np.int32(9)), "GatherV2"),
    "beside_a_call": Failing(
        beside_a_call, (X, np.int32(-9)), (X, np.int32(9)), "GatherV2", notes=1
    ),
    "of_many": Failing(of_many, (X, np.int32(2)), (X, np.int32(3)), "GatherV2"),
    "of_many_longs": Failing(of_many, (X, np.int64(2)), (X, np.int64(-1)), "GatherV2"),
    "asserted": Failing(asserted, (X, np.int32(1)), (X, np.int32(0)), "Assert"),
    "of_gradient": Failing(of_gradient, (X, np.int32(1)), (X, np.int32(3)), "GatherV2"),
}


class Steps(tf.Module):
    """A training step that raises an error after it has assigned a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0, name="count")

    @tf.function(jit_compile=True, input_signature=[F3, I])
    def step(self, x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        self.count.assign_add(1)
        return pure(x) + tf.gather(x, i)


def of_values(x: tf.Tensor) -> dict[str, Any]:
    """Values that XLA computes otherwise, for numbers and NaN."""
    return {
        "called": pure(x),
        "cast": tf.cast(x * 1e30, tf.int32),
        "maximum": tf.reduce_max(x / x),
        "square": tf.cast(x, tf.int8) * tf.constant(100, tf.int8) < 0,
        "shift": tf.bitwise.left_shift(1, tf.cast(x, tf.int32) + 33),
        "random": tf.random.stateless_normal([3], [1, 2]),
    }
