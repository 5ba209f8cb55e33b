"""The outcomes of running random programs; nothing here needs hostcall."""

import dataclasses
import logging
from typing import Any

import numpy as np
import tensorflow as tf

from tests.differential.control import run_block
from tests.differential.program import (
    Context,
    PlannedError,
    PlannedStopError,
    PlannedValueError,
    Program,
)

# The errors that TensorFlow raises for those of callbacks, other than in eager mode.
CLASSES: dict[type[Exception], type[tf.errors.OpError]] = {
    PlannedValueError: tf.errors.InvalidArgumentError,
    PlannedStopError: tf.errors.OutOfRangeError,
    PlannedError: tf.errors.UnknownError,
}


class NoReferenceError(Exception):
    """A program that fails in plain graph mode although it was not meant to."""


@dataclasses.dataclass
class Outcome:
    """The outcome of one call: its results or the class of its error, side effects, variables."""

    values: Any
    journal: list[Any]
    variables: list[np.ndarray]
    error: Exception | None = None

    @property
    def is_planned(self) -> bool:
        """True if the call has raised no error, or one that the program was meant to raise."""
        return self.error is None or "Planned" in str(self.error)


def build(program: Program, context: Context, eager: bool = False) -> Any:
    """The function that is called; in eager mode it is none of TensorFlow's."""

    def body(x: tf.Tensor, k: tf.Tensor) -> Any:
        return run_block(context, program.body, [x, k])

    def with_tape(x: tf.Tensor, k: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = inner(x, k)
            floats = [tf.reduce_sum(y) for y in results if y.dtype == tf.float64]
            loss = tf.add_n([tf.reduce_sum(x), *floats])
        return [*results, tape.gradient(loss, x)]

    inner: Any = body
    inside = with_tape if program.gradient == "inside" else body
    if eager:
        return with_tape if program.gradient else body
    sizes = None if program.fixed_shapes else [tf.TensorSpec([None], tf.float64),
                                               tf.TensorSpec([], tf.int32)]  # fmt: skip
    compiled = tf.function(inside, jit_compile=context.jit, autograph=False, input_signature=sizes)
    if program.gradient == "outside":
        inner = compiled
        outer: Any = with_tape
    else:
        outer = compiled
    context.keep.append(compiled)
    return tf.function(lambda x, k: outer(x, k), autograph=False) if program.nested else outer


def call(context: Context, function: Any, vector: Any, integer: int) -> Outcome:
    context.reset()
    x = tf.constant(vector, tf.float64, shape=[len(vector)])
    error = None
    try:
        values: Any = [y.numpy() for y in function(x, tf.constant(integer))]
    except Exception as caught:
        error = caught
        values = CLASSES.get(type(caught), type(caught))
    return Outcome(values, list(context.journal), context.variables(), error)


def compare(actual: Outcome, expected: Outcome) -> str:
    """Return the first difference between two outcomes as a text; "" if there is none."""
    if isinstance(expected.values, type) or isinstance(actual.values, type):
        if actual.values is not expected.values:
            return f"{actual.values} instead of {expected.values}: {str(actual.error)[:1500]}"
    else:
        sides = {"result": (actual.values, expected.values),
                 "variable": (actual.variables, expected.variables)}  # fmt: skip
        for what, (ours, theirs) in sides.items():
            for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if not same(one, other):
                    return f"{what} {i} is {describe(one)} instead of {describe(other)}"
    if actual.journal != expected.journal:
        return f"the journal is {actual.journal} instead of {expected.journal}"
    return ""


def same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return bool(one.dtype == other.dtype and one.shape == other.shape and np.all(one == other))


def describe(value: Any) -> str:
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)} {array.tolist()}"


def keep_quiet() -> None:
    """They complain about programs that are traced often, and tell what is partitioned."""
    for name in ("tensorflow", "hostcall"):
        logging.getLogger(name).setLevel(logging.ERROR)
