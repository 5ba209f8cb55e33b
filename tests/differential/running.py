"""Compiles a program by all routes, and compares what comes of it with plain graph mode."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

import hostcall
from tests.differential.outcomes import NoReferenceError, Outcome, build, call, compare
from tests.differential.program import Context, Program

ROUTES = ("custom_call", "partition", "auto")

# In the error of a loop whose condition changes a variable.
_CONDITION = "Output shape of loop condition should be"
# Texts in errors of programs that cannot be compiled, ours and TensorFlow's.
_REFUSALS = (
    _CONDITION,
    "hostcall: ",
    "Detected unsupported operations when trying to compile graph",
    "must be a compile-time constant",
    "not compilable",
    # Of a table, which XLA takes for a variable.
    "variable.var() && variable.var()->is_initialized",
    "Uninitialized arguments: table",
    "a loop carries the resource of",
    # Of a loop that carries vectors of other sizes.
    "Input and output shapes of loop body do not match",
    # Of a row taken from a list whose rows have no elements.
    "during context [hlo verifier]: Slice size",
    # Of what counts vectors without elements.
    "during context [hlo verifier]: Window",
    # Of such a list, whose rows differ in size.
    "xla/service/dynamic_dimension_inference.cc",
)

# Errors of XLA where a tape around a loop or branch needs a list or an optional from it.
_VARIANT_REFUSALS = (
    "Support for TensorList crossing the XLA/TF boundary is not implemented",
    "No registered 'OptionalFromValue' OpKernel",
    "is of dtype variant, which XLA has no values for",
)


def check(program: Program) -> set[str]:
    """Compare all ways to run a program, and return what happened, for statistics.

    Raises:
      AssertionError: when they differ.
      NoReferenceError: when plain graph mode fails, though the program was not meant to.
    """
    reference = Context(jit=False)
    expected = in_program_order(program, outcomes(program, reference, "auto"))
    events = planned_events(program, reference, expected)
    if any(outcome.error for outcome in expected):
        events.add("raises")
    found = []
    for route in ROUTES:
        # Where no function of it has a callback, stock XLA itself would get sizes wrong.
        with sizes_checked() if "dynamic" in reference.flags else contextlib.nullcontext():
            actual = outcomes(program, Context(jit=True), route)
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            if refusal := refused(program, route, reference, one):
                events.add(refusal)
            elif difference := compare(one, other):
                found.append(f"{route}, call {number}: {difference}")
    assert not found, "\n".join([*found, repr(program)])
    return events


def refused(program: Program, route: str, reference: Context, outcome: Outcome) -> str:
    """Return what a call is refused for, if its route may refuse the program; "" if it is not."""
    if route != "custom_call" or outcome.error is None:
        return ""
    # Without callbacks, TensorFlow alone decides what can be compiled.
    may_be = reference.flags or not reference.has_callbacks
    if may_be and is_refusal(program, outcome):
        return f"{route} refused"
    if is_refusal_of_tape(program, outcome):
        return "a tape around a compiled loop or branch refused"
    text = str(outcome.error)
    # XLA refuses a range of unknown length without callbacks, too.
    if not outcome.journal and "with op Range must be a compile-time" in text:
        return "a loop over a range in a compiled loop refused"
    if not outcome.journal and _CONDITION in text:
        return "a condition that changes a variable refused"
    return ""


def check_sizes(program: Program) -> set[str]:
    """Compare a program without callbacks, compiled with checked sizes, with plain graph mode.

    Raises as `check` does, and where a program is refused that stock TensorFlow compiles.
    """
    reference = Context(jit=False)
    expected = outcomes(program, reference, "auto")
    events = planned_events(program, reference, expected)
    with sizes_checked():
        actual = outcomes(program, Context(jit=True), "auto")
    found = []
    for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
        # Without checked sizes.
        stock = outcomes(program, Context(jit=True), "auto") if is_refusal(program, one) else []
        if stock and stock[number].error is not None:
            events.add("refused, and by stock, too")
        elif difference := compare(one, other):
            found.append(f"call {number}: {difference}")
    assert not found, "\n".join([*found, repr(program)])
    return events


def planned_events(program: Program, reference: Context, expected: list[Outcome]) -> set[str]:
    """Return what the reference has come to, for statistics; raise where that was not planned."""
    for outcome in expected:
        if not outcome.is_planned:
            raise NoReferenceError(f"{outcome.error}\n{program}")
    return set(reference.flags) | {f"gradient {program.gradient}"}


@contextlib.contextmanager
def sizes_checked() -> Iterator[None]:
    """Has the ops that XLA may get wrong on the host, in functions without callbacks, too."""
    hostcall.configure(functions="all")
    try:
        yield
    finally:
        hostcall.configure(functions="taken")


def in_program_order(program: Program, graph: list[Outcome]) -> list[Outcome]:
    """The outcomes in plain graph mode, or those in eager mode where these tell another order.

    Plain graph mode does not order callbacks and loops or branches that use a variable.
    """
    # A callback that counts the others returns a value that depends on the order.
    counts = "op='entries'" in repr(program)
    if not any(o.is_planned and len(o.journal) > (0 if counts else 1) for o in graph):
        return graph
    context = Context(jit=False)
    context.reset()
    tf.config.run_functions_eagerly(True)  # those within the program, too
    try:
        function = build(program, context, eager=True)
        eager = [call(context, function, *args) for args in program.inputs]
    finally:
        tf.config.run_functions_eagerly(False)
    return [
        one if one.journal != other.journal or (counts and compare(one, other)) else other
        for one, other in zip(eager, graph, strict=True)
    ]


def outcomes(program: Program, context: Context, route: str) -> list[Outcome]:
    context.reset()
    with hostcall.scope(route=route):
        function = build(program, context)
        return [call(context, function, *args) for args in program.inputs]


def is_refusal(program: Program, outcome: Outcome) -> bool:
    """Return whether a call failed before any side effect, with an error that states the reason."""
    if outcome.error is None or outcome.is_planned:
        return False
    if outcome.journal and program.gradient != "outside":
        return False
    return any(text in str(outcome.error) for text in _REFUSALS)


def is_refusal_of_tape(program: Program, outcome: Outcome) -> bool:
    """Return whether a tape around a compiled loop or branch is refused, as stock refuses it."""
    text = str(outcome.error)
    return program.gradient == "outside" and any(part in text for part in _VARIANT_REFUSALS)
