"""Runs a random program without compiling it; for processes with hostcall and without."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.differential.outcomes import Outcome, build, call, describe, keep_quiet
from tests.differential.program import Block, Context, Program, Statement

v1 = tf.compat.v1


def outcomes(text: str, way: str, with_hostcall: bool) -> list[dict[str, Any]]:
    """Return what comes of the calls of a program, in its own words, in one of `WAYS`, as JSON."""
    assert ("hostcall" in sys.modules) == with_hostcall
    keep_quiet()
    program = eval(text, {"Program": Program, "Block": Block, "Statement": Statement})
    return [_as_json(outcome) for outcome in WAYS[way](program)]


def _as_json(outcome: Outcome) -> dict[str, Any]:
    failed = isinstance(outcome.values, type)
    return {
        "values": outcome.values.__name__ if failed else list(map(describe, outcome.values)),
        "variables": [] if failed else list(map(describe, outcome.variables)),
        "journal": [str(entry) for entry in outcome.journal],
    }


def _called(program: Program, eager: bool = False) -> list[Outcome]:
    context = Context(jit=False)
    context.reset()
    return [call(context, build(program, context, eager), *args) for args in program.inputs]


class GraphContext(Context):
    """Its variables are in the default graph, of TensorFlow 1."""

    variable = functools.partial(v1.Variable, use_resource=True)


def _in_session(program: Program, function: bool) -> list[Outcome]:
    return [_run(program, function, *args) for args in program.inputs]


def _run(program: Program, function: bool, vector: Any, integer: int) -> Outcome:
    """Run one call in a graph and a session of its own, and return its outcome."""
    context = GraphContext(jit=False)
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [getattr(context, name) for name in context.VARIABLES]
        x = v1.placeholder(tf.float64, [len(vector)] if program.fixed_shapes else [None])
        k = v1.placeholder(tf.int32, [])
        try:
            made = build(program, context, eager=not function)(x, k)
            session.run(v1.global_variables_initializer())
            values = session.run(list(made), {x: vector, k: integer})
        except Exception as error:
            return Outcome(type(error), sorted(map(str, context.journal)), [], error)
        # Nothing orders ops in a graph of TensorFlow 1.
        journal = context.journal if function else sorted(map(str, context.journal))
        return Outcome(values, journal, session.run(variables))


WAYS: dict[str, Callable[[Program], list[Outcome]]] = {
    "eager mode": lambda program: _called(program, eager=True),
    "a function": _called,
    "a session": lambda program: _in_session(program, function=False),
    "a function in a session": lambda program: _in_session(program, function=True),
}
