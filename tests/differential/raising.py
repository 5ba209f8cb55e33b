"""Compares the errors of programs that graph mode refuses for their values."""

import re

import numpy as np
import tensorflow as tf

import hostcall
from tests.differential.outcomes import Outcome, build, call, compare
from tests.differential.program import Context, Program
from tests.differential.running import ROUTES, is_refusal, is_refusal_of_tape, outcomes

# The op in our message, or in that of an op in eager mode.
_OP = re.compile(r"\(op '[^']*', (\w+)|\[Op:([A-Z]\w+)\]|__wrapped__(\w+?)_device")


def check_raising(program: Program) -> set[str]:
    """Compare the errors of a program by all routes with those of plain graph mode.

    Raises:
      AssertionError: when they differ.
    """
    reference = Context(jit=False)
    expected = outcomes(program, reference, "auto")
    in_order = _in_eager_mode(program)
    events = {f"gradient {program.gradient}"}
    found = []
    for route in ROUTES:
        hostcall.configure(functions="all")
        try:
            actual = outcomes(program, Context(jit=True), route)
        finally:
            hostcall.configure(functions="taken")
        for number, (one, graph, eager) in enumerate(zip(actual, expected, in_order, strict=True)):
            if route == "custom_call" and is_refusal(program, one):
                events.add("custom_call refused")
            elif route == "custom_call" and is_refusal_of_tape(program, one):
                events.add("a tape around a compiled loop or branch refused")
            elif difference := _difference(one, graph, eager, events, route):
                found.append(f"{route}, call {number}: {difference}")
    assert not found, "\n".join([*found, repr(program)])
    return events


def _in_eager_mode(program: Program) -> list[Outcome]:
    """Return the outcomes in the order of the program; unused ops raise, too."""
    context = Context(jit=False)
    context.reset()
    tf.config.run_functions_eagerly(True)
    try:
        function = build(program, context, eager=True)
        return [call(context, function, *args) for args in program.inputs]
    finally:
        tf.config.run_functions_eagerly(False)


def _difference(one: Outcome, graph: Outcome, eager: Outcome, events: set[str], route: str) -> str:
    if route == "custom_call" and "tf2xla conversion failed" in str(one.error):
        events.add("XLA refuses values that it sees")  # those of unused ops, too
        return ""
    if graph.error is None:
        if eager.error is not None:
            events.add("what nothing uses would raise")
            # On the host, it is TensorFlow's own kernel that raises, whose message names no op.
            is_of_op = _op(one) or (route == "partition" and one.values is eager.values)
            if one.error is not None and is_of_op:
                # Graph mode drops it also where a function, branch or loop with effects returns it.
                events.add("what nothing uses raises")
                return ""
            eager = graph
            one.journal = graph.journal
        return compare(one, eager)
    events.add("raises")
    # Graph mode has no order of errors.
    classes = [outcome.values for outcome in (graph, eager) if outcome.error is not None]
    if one.error is None or one.values not in classes:
        return f"{one.values} instead of {classes}: {str(graph.error)[:500]}"
    if not _op(one) or not _op(eager) or one.values is not eager.values:
        return ""
    if _op(one) != _op(eager):
        events.add("raises for another op than eager mode")
        return ""
    events.add("raises for the same op as eager mode")
    return "" if route == "partition" else _effects(one, eager)


def _op(outcome: Outcome) -> str:
    """Return the op that an error of hostcall's, or one of eager mode, is about; or ""."""
    found = _OP.search(str(outcome.error))
    return next(filter(None, found.groups())) if found else ""


def _effects(one: Outcome, eager: Outcome) -> str:
    """Return what a program that raises has done that eager mode had not, or the reverse."""
    if one.journal != eager.journal:
        return f"the journal is {one.journal} instead of {eager.journal}"
    names = [name for name in Context.VARIABLES if name != "python_variable"]
    for name, value in zip(Context.VARIABLES, one.variables, strict=True):
        if name in names and not np.array_equal(value, Context.VARIABLES[name]):
            return f"{name} is {value} although the program raised"
    return ""
