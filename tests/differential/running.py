"""Runs a program in all ways, and compares what comes of it."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.differential.control import run_block
from tests.differential.program import (
    Context,
    PlannedError,
    PlannedStopError,
    PlannedValueError,
    Program,
)

ROUTES = ("custom_call", "split", "auto")

# How a program says that it cannot be compiled, in prose of ours and in TensorFlow's.
_REFUSALS = (
    "hostcall: ",
    "Detected unsupported operations when trying to compile graph",
    "must be a compile-time constant",
    "not compilable",
)

# What XLA says where a tape around a loop or branch wants a list or an optional from it.
_VARIANT_REFUSALS = (
    "Support for TensorList crossing the XLA/TF boundary is not implemented",
    "No registered 'OptionalFromValue' OpKernel",
)

# What TensorFlow makes of the errors of callbacks, other than in eager mode.
CLASSES = {
    PlannedValueError: tf.errors.InvalidArgumentError,
    PlannedStopError: tf.errors.OutOfRangeError,
    PlannedError: tf.errors.UnknownError,
}


class NoReferenceError(Exception):
    """A program that fails in plain graph mode although it was not meant to."""


@dataclasses.dataclass
class Outcome:
    """What came of one call.

    Attributes:
      values: the results, or the class of the error.
      journal: the side effects in Python.
      variables: their final values.
      error: the error itself.
    """

    values: Any
    journal: list[Any]
    variables: list[np.ndarray]
    error: Exception | None = None

    @property
    def is_planned(self) -> bool:
        """Whether it is as the program was meant to end."""
        return self.error is None or "Planned" in str(self.error)


def check(program: Program) -> set[str]:
    """Compares all ways to run a program.

    Returns:
      What happened, for statistics.

    Raises:
      AssertionError: when they differ.
      NoReferenceError: when plain graph mode fails, though the program was not meant to.
    """
    reference = Context(jit=False)
    expected = in_program_order(program, outcomes(program, reference, "auto"))
    for outcome in expected:
        if not outcome.is_planned:
            raise NoReferenceError(f"{outcome.error}\n{program}")
    events = set(reference.flags) | {f"gradient {program.gradient}"}
    if any(outcome.error for outcome in expected):
        events.add("raises")
    found = []
    for route in ROUTES:
        actual = outcomes(program, Context(jit=True), route)
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            if may_refuse(route, reference) and is_refusal(program, one):
                events.add(f"{route} refused")
            elif is_refused_variant(program, route, reference, one):
                events.add("a tape around a compiled loop or branch refused")
            elif is_refused_range(one):
                events.add("a loop over a range in a compiled loop refused")
            elif difference := compare(one, other):
                found.append(f"{route}, call {number}: {difference}")
    assert not found, "\n".join([*found, repr(program)])
    return events


def in_program_order(program: Program, graph: list[Outcome]) -> list[Outcome]:
    """The outcomes in plain graph mode, or those in eager mode where these tell another order.

    Plain graph mode does not order callbacks and loops or branches that use a variable.
    """
    # A callback that counts the others returns what the order makes of it.
    counts = "op='entries'" in repr(program)
    if not any(o.is_planned and len(o.journal) > (0 if counts else 1) for o in graph):
        return graph
    context = Context(jit=False)
    context.reset()
    eager = [call(context, build(program, context, eager=True), *args) for args in program.inputs]
    return [
        one if one.journal != other.journal or (counts and compare(one, other)) else other
        for one, other in zip(eager, graph, strict=True)
    ]


def outcomes(program: Program, context: Context, route: str) -> list[Outcome]:
    """What comes of the calls of a program by one route."""
    context.reset()
    with hostcall.scope(route=route):
        function = build(program, context)
        return [call(context, function, *args) for args in program.inputs]


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
        values = [y.numpy() for y in function(x, tf.constant(integer))]
    except Exception as caught:
        error = caught
        values = CLASSES.get(type(caught), type(caught))
    return Outcome(values, list(context.journal), context.variables(), error)


def may_refuse(route: str, reference: Context) -> bool:
    """Whether a program need not compile by a route."""
    flags = reference.flags
    if not reference.has_callbacks:
        # It is TensorFlow's business what it can compile, unless splitting round it was asked for.
        return route != "split" or "no_kernel" not in flags
    if route == "custom_call":
        return bool(flags)
    return route == "auto" and flags == {"no_kernel"}


def is_refused_variant(program: Program, route: str, reference: Context, outcome: Outcome) -> bool:
    """Whether a loop or branch is compiled whole, which XLA refuses where a tape is around it."""
    whole = {
        "custom_call": True,
        "auto": "host" not in reference.flags,
        "split": not reference.has_callbacks,
    }
    refused = any(text in str(outcome.error) for text in _VARIANT_REFUSALS)
    return program.gradient == "outside" and whole[route] and refused


def is_refused_range(outcome: Outcome) -> bool:
    """Whether XLA wants to know the length of a range, as it does without callbacks, too."""
    return not outcome.journal and "with op Range must be a compile-time" in str(outcome.error)


def is_refusal(program: Program, outcome: Outcome) -> bool:
    """Whether a call failed before anything has happened, with an error that says why."""
    if outcome.error is None or outcome.is_planned:
        return False
    if outcome.journal and program.gradient != "outside":
        return False
    return any(text in str(outcome.error) for text in _REFUSALS)


def compare(actual: Outcome, expected: Outcome) -> str:
    """What is different, if anything is."""
    if isinstance(expected.values, type) or isinstance(actual.values, type):
        if actual.values is not expected.values:
            return f"{actual.values} instead of {expected.values}: {str(actual.error)[:1500]}"
    else:
        pairs = enumerate(zip(actual.values, expected.values, strict=True))
        for i, (one, other) in pairs:
            if not same(one, other):
                return f"result {i} is {describe(one)} instead of {describe(other)}"
        pairs = enumerate(zip(actual.variables, expected.variables, strict=True))
        for i, (one, other) in pairs:
            if not same(one, other):
                return f"variable {i} is {one} instead of {other}"
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
    """They complain about programs that are traced often, and tell what is split."""
    for name in ("tensorflow", "hostcall"):
        logging.getLogger(name).setLevel(logging.ERROR)
