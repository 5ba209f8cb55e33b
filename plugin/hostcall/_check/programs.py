"""Checks that plain, compiled, partitioned and JAX programs get the function's own results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall import _control
from hostcall._callbacks import requested_routes
from hostcall._callbacks.requested_routes import AUTO, PARTITION
from hostcall._callbacks.structures import BoundedSpec
from hostcall._check import lines
from hostcall._check.subject import described
from hostcall._check.trial import Outcome, Trial, differing, skip_if
from hostcall._tf import tensor_structures
from hostcall_runtime import _errors, _fire_and_forget

_DISABLED = "hostcall is disabled: hostcall.enable() switches it on"
_CAUSE = (
    "it depends on where it is called: its thread (thread-local state, event loops, libraries for "
    "the main thread alone), the stack, or whether arrays may be written to"
)

# Runs a program and returns its results as new arrays.
Run = Callable[[], list[np.ndarray]]


def compiled(trial: Trial) -> Iterator[Outcome]:
    """Check that plain and compiled programs get the results that the function returns."""
    skip_if(not _control.is_enabled(), _DISABLED)
    plain = _runner(trial, requested_routes.current())
    jitted = _runner(trial, AUTO, jit_compile=True)
    yield from _compared(trial, {"a plain graph": plain, "a compiled program": jitted})


def partitioned(trial: Trial) -> Iterator[Outcome]:
    """Check that a partitioned program gets the results that the function returns."""
    declared = trial.subject.options.route
    skip_if(not _control.is_enabled(), _DISABLED)
    skip_if(declared not in (None, AUTO, PARTITION), f"route={declared!r} is declared")
    run = _runner(trial, PARTITION, jit_compile=True)
    yield from _compared(trial, {"a partitioned program": run})


def in_jax(trial: Trial) -> Iterator[Outcome]:
    """Check that a compiled JAX program gets the same results, if it can make the call."""
    subject, sample = trial.subject, trial.base.sample
    skip_if(not subject.arguments.of_jax, "no argument is an array of JAX's")
    skip_if(not subject.declared.is_callback, "it is no hostcall.callback")
    skip_if(subject.eager, "it takes TensorFlow's tensors")
    is_open = any(
        isinstance(spec, BoundedSpec) or not spec.shape.is_fully_defined()
        for spec in subject.specs(sample.specs)
    )
    skip_if(is_open, "JAX has no arrays whose sizes only the call tells")
    skip_if(tf.string in subject.outputs.dtypes, "JAX has no strings")
    import jax

    program = jax.jit(lambda *args: subject.program(*args))

    def run() -> list[np.ndarray]:
        arrays = [jax.numpy.asarray(tensor.numpy()) for tensor in sample.tensors]
        called = jax.block_until_ready(program(*subject.nested(arrays)))
        jax.effects_barrier()
        return [np.asarray(leaf) for leaf in jax.tree.leaves(called)]

    yield from _compared(trial, {"a compiled JAX program": run})


def _runner(trial: Trial, route: str, jit_compile: bool | None = None) -> Run:
    """Return a function that calls the subject in a program, with its route."""
    subject, given = trial.subject, trial.base.sample.tensors

    def call(*tensors: Any) -> Any:
        # TensorFlow mishandles four-bit integers, so they go in and out as eight-bit ones.
        inputs = [_cast(one, like.dtype) for one, like in zip(tensors, given, strict=True)]
        results = subject.program(*subject.nested(inputs))
        if not subject.outputs.dtypes:
            return []  # not the op that a call without results returns
        flat = tf.nest.flatten(results, expand_composites=True)
        return [_cast(result, tensor_structures.wide(result.dtype)) for result in flat]

    program = tf.function(call, jit_compile=jit_compile, autograph=False)

    def run() -> list[np.ndarray]:
        tensors = [tf.identity(_cast(one, tensor_structures.wide(one.dtype))) for one in given]
        with requested_routes.scope(route=route):
            # TensorFlow warns of functions that a call traces and that are then thrown away.
            results = program.get_concrete_function(*tensors)(*tensors)
        if subject.options.line is not None:
            _fire_and_forget.barrier()
        pairs = zip(results, subject.outputs.dtypes, strict=True)
        return [np.array(_cast(tensor, dtype).numpy()) for tensor, dtype in pairs]

    return run


def _cast(tensor: Any, dtype: tf.DType) -> Any:
    return tensor if tensor.dtype == dtype else tf.cast(tensor, dtype)


def _compared(trial: Trial, runs: dict[str, Run]) -> Iterator[Outcome]:
    """Compare programs, by their names, with the function itself."""
    subject = trial.subject
    for name, run in runs.items():
        found = _difference(trial, name, run)
        if found:
            where = f"def {subject.name}(...): ..."
            line = f"{where}    # the same on each thread, by its arguments alone"
            yield trial.finding(found, _CAUSE, line)
            return
    if subject.outputs.dtypes and not trial.repeats:
        yield trial.partly("its values: two calls do not return the same")


def _difference(trial: Trial, name: str, run: Run) -> str:
    """Return a description of a program's error or wrong result, or ""."""
    wanted = trial.first_results
    trial.subject.calls += 1
    try:
        got = run()
    except Exception as error:
        return f"{name} raises {described(_errors.last_error(error) or error)}"
    if not trial.repeats:
        return ""
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        alike = [one], [other]
        if other.dtype.kind in "OSU":
            alike = [_as_bytes(one)], [_as_bytes(other)]
        if differing(*alike):
            found = f"result {index} is {lines.shown(one)}"
            return f"in {name} {found}, and the function itself returns {lines.shown(other)}"
    return ""


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return np.asarray(tf.constant(array.tolist()).numpy())
