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
from hostcall._check.report import Finding, NotChecked
from hostcall._check.trial import Outcome, Trial, same_twice
from hostcall._tf import tensor_structures
from hostcall_runtime import _errors, _fire_and_forget

_DISABLED = "hostcall is disabled: hostcall.enable() switches it on"
_CAUSE = (
    "it depends on where it is called: its thread (thread-local state, event loops, libraries for "
    "the main thread alone), the stack, or whether arrays may be written to"
)


def compiled(trial: Trial) -> Iterator[Outcome]:
    """Check that plain and compiled programs get the results that the function returns."""
    if not _control.is_enabled():
        yield NotChecked("compiled", _DISABLED)
        return
    for name, run in (("a plain graph", _plain(trial)), ("a compiled program", _jitted(trial))):
        found = _compared(trial, name, run)
        if found is not None:
            yield Finding("compiled", found, _CAUSE, _line(trial))
            return
    yield from _not_compared(trial, "compiled")


def partitioned(trial: Trial) -> Iterator[Outcome]:
    """Check that a partitioned program gets the results that the function returns."""
    declared = trial.subject.declaration.route
    if not _control.is_enabled():
        yield NotChecked("partitioned", _DISABLED)
        return
    if declared not in (None, AUTO, PARTITION):
        yield NotChecked("partitioned", f"route={declared!r} is declared")
        return
    found = _compared(trial, "a partitioned program", _jitted(trial, PARTITION))
    if found is not None:
        yield Finding("partitioned", found, _CAUSE, _line(trial))
        return
    yield from _not_compared(trial, "partitioned")


def in_jax(trial: Trial) -> Iterator[Outcome]:
    """Check that a compiled JAX program gets the same results, if it can make the call."""
    why = _not_for_jax(trial)
    if why:
        yield NotChecked("jax", why)
        return
    import jax

    subject = trial.subject
    program = jax.jit(lambda *args: subject.program(*args))

    def run() -> list[np.ndarray]:
        arrays = [jax.numpy.asarray(t.numpy()) for t in trial.base.sample.tensors]
        called = jax.block_until_ready(program(*subject.nested(arrays)))
        jax.effects_barrier()
        return [np.asarray(leaf) for leaf in jax.tree.leaves(called)]

    found = _compared(trial, "a compiled JAX program", run)
    if found is not None:
        yield Finding("jax", found, _CAUSE, _line(trial))
        return
    yield from _not_compared(trial, "jax")


def _plain(trial: Trial) -> Callable[[], list[np.ndarray]]:
    return _runner(trial, tf.function(_called(trial), autograph=False))


def _jitted(trial: Trial, route: str = AUTO) -> Callable[[], list[np.ndarray]]:
    program = tf.function(_called(trial), jit_compile=True, autograph=False)
    return _runner(trial, program, route)


def _called(trial: Trial) -> Callable[..., Any]:
    """Return a function that calls the subject in a program; it takes and returns flat lists."""
    subject = trial.subject

    def call(*tensors: Any) -> Any:
        # TensorFlow mishandles four-bit integers, so they go in and out as eight-bit ones.
        pairs = zip(tensors, trial.base.sample.tensors, strict=True)
        inputs = [_cast(tensor, like.dtype) for tensor, like in pairs]
        results = subject.program(*subject.nested(inputs))
        if not subject.outputs.dtypes:
            return []  # not the op that a call without results returns
        flat = tf.nest.flatten(results, expand_composites=True)
        return [_cast(result, tensor_structures.wide(result.dtype)) for result in flat]

    return call


def _cast(tensor: Any, dtype: tf.DType) -> Any:
    return tensor if tensor.dtype == dtype else tf.cast(tensor, dtype)


def _runner(trial: Trial, program: Any, route: str | None = None) -> Callable[[], list[np.ndarray]]:
    """Return a function that runs a program and returns its results as new arrays."""
    subject = trial.subject

    def run() -> list[np.ndarray]:
        tensors = [
            tf.identity(_cast(tensor, tensor_structures.wide(tensor.dtype)))
            for tensor in trial.base.sample.tensors
        ]
        with requested_routes.scope(route=route or requested_routes.current()):
            # TensorFlow warns of functions that a call traces and that are then thrown away.
            results = program.get_concrete_function(*tensors)(*tensors)
        if subject.declaration.line is not None:
            _fire_and_forget.barrier()
        pairs = zip(results, subject.outputs.dtypes, strict=True)
        return [np.array(_cast(tensor, dtype).numpy()) for tensor, dtype in pairs]

    return run


def _compared(trial: Trial, name: str, run: Callable[[], list[np.ndarray]]) -> str | None:
    """Return a description of a program's error or wrong result, or None."""
    wanted = trial.first_results
    trial.subject.calls += 1
    try:
        got = run()
    except Exception as error:
        raised = _errors.last_error(error) or error
        text = str(raised).strip().splitlines() or [""]
        return f"{name} raises {type(raised).__name__}: {text[0][:300]}"
    if not trial.repeats:
        return None
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if not _are_alike(one, other):
            return (
                f"in {name} result {index} is {lines.shown(one)}, and the function itself returns "
                f"{lines.shown(other)}"
            )
    return None


def _are_alike(one: np.ndarray, other: np.ndarray) -> bool:
    if other.dtype.kind in "OSU":
        texts = [np.asarray(tf.constant(array.tolist()).numpy()) for array in (one, other)]
        return same_twice(texts[:1], texts[1:])
    return same_twice([one], [other])


def _not_compared(trial: Trial, check: str) -> Iterator[NotChecked]:
    if trial.subject.outputs.dtypes and not trial.repeats:
        why = "its values: two calls do not return the same"
        yield NotChecked(check, why, partly=True)


def _not_for_jax(trial: Trial) -> str:
    """Return the reason why a JAX program cannot make the call, or ""."""
    subject = trial.subject
    if not subject.arguments.of_jax:
        return "no argument is an array of JAX's"
    if not subject.declared.is_callback:
        return "it is no hostcall.callback"
    if subject.eager:
        return "it takes TensorFlow's tensors"
    specs = subject.specs(trial.base.sample.specs)
    if any(isinstance(spec, BoundedSpec) or not spec.shape.is_fully_defined() for spec in specs):
        return "JAX has no arrays whose sizes only the call tells"
    if tf.string in subject.outputs.dtypes:
        return "JAX has no strings"
    return ""


def _line(trial: Trial) -> str:
    return (
        f"def {trial.subject.name}(...): ...    # the same on each thread, by its arguments alone"
    )
