"""Exports random programs, loads them in all ways, and compares what they do with the originals."""

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tensorflow as tf

import hostcall
import hostcall_mlir
from hostcall_mlir.program.files import read
from tests.differential.outcomes import CLASSES, NoReferenceError, Outcome, build, call, compare
from tests.differential.program import Context, Program
from tests.differential.running import is_refusal

# The function that calls a loaded program, and its variables by name: TensorFlow's, or arrays.
Loaded = tuple[Callable[..., Any], dict[str, Any]]

_NOT_COMPILED = "XLA cannot compile it"
# Where a function is called, its arguments are constants for XLA; where it is exported, none is.
_NO_CONSTANT = "must be a compile-time constant"
# XLA compiles some loops around branches, and has no StableHLO for them.
_NO_TUPLES = "Unsupported type: TUPLE"
# XLA refuses it later than StableHLO is made.
_BY_XLA = "during context [hlo verifier]"
_GRADIENT = "the program computes its gradient, which only the process that made"
# An op takes such sizes or makes them, and XLA may get it wrong.
_DYNAMIC = "only bounded"
_NO_STABLEHLO = "TensorFlow has no StableHLO for"
_GROWS = "writes to a list that may grow"
_BOUNDED = "arrays whose sizes are known only when it runs"


class _RefusedError(Exception):
    """Why a program cannot be exported, or loaded in one way, as docs/exporting.md says."""


@dataclasses.dataclass
class Original:
    """A program as one function that XLA compiles, be there a tape outside of it or not."""

    program: Program
    context: Context

    def __post_init__(self) -> None:
        self.context.reset()  # creates the variables
        function = build(self.program, self.context)
        self.function = tf.function(lambda x, k: function(x, k), jit_compile=True, autograph=False)

    def call(self, *args: Any) -> Outcome:
        return call(self.context, self.function, *args)

    def compiles(self, size: int) -> bool:
        """Return whether XLA compiles the program for any values of the arguments.

        A call may need less: where XLA needs an argument to be a constant, TensorFlow compiles the
        program for its value, and only the side of a branch that this value selects.
        """
        try:
            self.function.experimental_get_compiler_ir(*_specs(size))(stage="hlo")
        except (ValueError, tf.errors.OpError):
            return False
        return True

    def export(self, size: int) -> hostcall_mlir.Program:
        """Export the program for vectors of one size, or raise a _RefusedError."""
        self.context.reset()
        try:
            return hostcall.export(self.function, *_specs(size), variables="inputs")
        except ValueError as error:
            for reason in (_NOT_COMPILED, _GRADIENT, _DYNAMIC, _NO_STABLEHLO, _GROWS):
                if reason in str(error):
                    raise _RefusedError(reason) from error
            raise


def _specs(size: int) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    return tf.TensorSpec([size], tf.float64), tf.TensorSpec([], tf.int32)


def check_exported(program: Program) -> set[str]:
    """Compare a program that is exported and loaded, in all ways, with the compiled function.

    Returns what happened, for statistics. Differences are values, variables, errors and calls.
    """
    hostcall.allow("tests.differential")
    context = Context(jit=True, exports=True)
    events: set[str] = set()
    try:
        with hostcall.scope(route="custom_call"):
            original = Original(program, context)
            sizes = dict.fromkeys(len(vector) for vector, _ in program.inputs)
            found = [text for size in sizes for text in _differences(original, size, events)]
    finally:
        context.forget()
    assert not found, "\n".join([*found, repr(program)])
    return events


def _differences(original: Original, size: int, events: set[str]) -> Iterator[str]:
    """Yield the differences of loaded programs for vectors of one size; add to the events."""
    program = original.program
    calls = [args for args in program.inputs if len(args[0]) == size]
    expected = [original.call(*args) for args in calls]
    refused = any(is_refusal(program, outcome) for outcome in expected)
    if not refused and not all(outcome.is_planned for outcome in expected):
        raise NoReferenceError(f"{[outcome.error for outcome in expected]}\n{program}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            original.export(size).save(folder)
        except _RefusedError as error:
            events.update({"refused", f"refused: {error}"})
            cause = str(error.__cause__)
            expects = refused or _NO_CONSTANT in cause or _NO_TUPLES in cause
            if str(error) == _NOT_COMPILED and not expects and original.compiles(size):
                yield f"size {size}: XLA compiles it, but not for export: {error.__cause__}"
            return
        if refused and not any(_BY_XLA in str(outcome.error) for outcome in expected):
            # Of empty arrays, an export knows that sizes are equal, and that no value is at stake.
            if size:
                yield f"size {size}: XLA compiles it for export alone: {expected}"
            return
        for way, load in WAYS.items():
            try:
                loaded = load(Path(folder), original.context)
            except _RefusedError as error:
                events.add(f"refused by hostcall.load: {error}")
                continue
            events.add(way)
            # Twice, since a program is to be sound after an error.
            for number, (args, outcome) in enumerate([*zip(calls, expected, strict=True)] * 2):
                actual = outcome_of(original.context, loaded, *args)
                if difference := compare(actual, outcome):
                    yield f"{way}, size {size}, call {number}: {difference}"


def in_tensorflow(folder: Path, context: Context, jit: bool = False) -> Loaded:
    try:
        loaded = hostcall.load(folder, callbacks=given(folder, context, lambda f: f))
    except hostcall_mlir.ProgramError as error:
        if _BOUNDED in str(error):
            raise _RefusedError(_BOUNDED) from error
        raise
    variables = {variable.name.partition(":")[0]: variable for variable in loaded.variables}
    if not jit:
        return loaded, variables
    return tf.function(lambda x, k: loaded(x, k), jit_compile=True, autograph=False), variables


def without_tensorflow(folder: Path, context: Context, partitioned: bool = False) -> Loaded:
    callbacks = given(folder, context, of_arrays)
    loaded = hostcall_mlir.load(folder, callbacks=callbacks, partitioned=partitioned)
    return loaded.call, loaded.variables


WAYS: dict[str, Callable[[Path, Context], Loaded]] = {
    "loaded": in_tensorflow,
    "loaded and compiled": functools.partial(in_tensorflow, jit=True),
    "loaded whole": without_tensorflow,
    "loaded partitioned": functools.partial(without_tensorflow, partitioned=True),
}


def given(folder: Path, context: Context, adapt: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions that are not to be imported; `adapt` takes those of tensors."""
    found = {}
    for callback in read(folder).manifest.callbacks:
        name = callback.name.partition("#")[0]
        if callback.kind == "eager":
            found[name] = adapt(context.functions[name])
        elif callback.function is None:
            found[name] = context.functions[name]
    return found


def of_arrays(function: Any) -> Any:
    def call_it(*arrays: np.ndarray) -> Any:
        results = function(*map(tf.constant, arrays))
        return tf.nest.map_structure(lambda y: None if y is None else np.asarray(y), results)

    return call_it


def outcome_of(context: Context, loaded: Loaded, vector: Any, integer: int) -> Outcome:
    run, variables = loaded
    context.reset()
    for name, value in variables.items():
        if isinstance(value, tf.Variable):
            value.assign(getattr(context, name))
        else:
            variables[name] = getattr(context, name).numpy()
    error = None
    try:
        results = run(np.asarray(vector, np.float64), np.int32(integer))
        values: Any = list(map(np.asarray, results))
    except Exception as caught:
        error = caught
        raised = caught.__cause__ if isinstance(caught, jax.errors.JaxRuntimeError) else caught
        values = CLASSES.get(type(raised), type(raised))
    own = zip(Context.VARIABLES, context.variables(), strict=True)
    final = [np.asarray(variables.get(name, value)) for name, value in own]
    return Outcome(values, list(context.journal), final, error)
