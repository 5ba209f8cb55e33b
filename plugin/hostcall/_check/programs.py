"""Checks that programs of TensorFlow and JAX, gradients and batches get the right values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from hostcall import _control
from hostcall._callbacks import array_specs, requested_routes, structures
from hostcall._callbacks.requested_routes import AUTO, PARTITION
from hostcall._callbacks.structures import BoundedSpec
from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.report import Finding
from hostcall._check.subject import Called, described, first_line
from hostcall._check.trial import Outcome, SkipError, Trial, differing, skip_if
from hostcall._functions.options import BROADCAST_ALL, OF_BATCHES
from hostcall._tf import function_defs as defs
from hostcall_runtime import _errors, _fire_and_forget
from hostcall_runtime._errors import counted

_DISABLED = "hostcall is disabled: hostcall.enable() switches it on"
_CAUSE_ELSEWHERE = (
    "it depends on where it is called: its thread (thread-local state, event loops, libraries for "
    "the main thread alone), the stack, or whether arrays may be written to"
)

Run = Callable[[], list[np.ndarray]]  # runs a program and returns its results as new arrays


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
    skip_if(not subject.is_callback, "it is no hostcall.callback")
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
        return [_cast(result, defs.wide(result.dtype)) for result in flat]

    program = tf.function(call, jit_compile=jit_compile, autograph=False)

    def run() -> list[np.ndarray]:
        tensors = [tf.identity(_cast(one, defs.wide(one.dtype))) for one in given]
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
            yield trial.finding(found, _CAUSE_ELSEWHERE, line)
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


_SEED = 20

# The step of finite differences, relative to the largest value, for the precision of each dtype.
_STEPS = {np.dtype(np.float32): 1e-2, np.dtype(np.float64): 1e-4}

# Relative tolerances: between two estimates of a derivative, and between estimate and gradient.
_SMOOTH, _RIGHT = 0.02, 0.05

_ZEROS = (
    "all gradients are zeros, as they are of a function that computes with arrays: "
    "hostcall.callback(..., grad=...) gives it another one"
)
_GRAD = "def grad(inputs, results, upstream): ..."


def gradient(trial: Trial) -> Iterator[Outcome]:
    """Check that the gradient has the arguments' shapes and agrees with finite differences."""
    subject = trial.subject
    grad = subject.user.grad
    skip_if(grad is None and not subject.eager, "it has none: no grad= is declared")
    skip_if(
        not any(map(_is_real, subject.outputs.dtypes)) or subject.inputs.composite,
        "no result is a tensor of real numbers",
    )
    upstream = _upstream(trial)
    if grad is not None:
        found = list(_of_given(trial, upstream))
        yield from found
        if found:
            return
    try:
        gradients = _by_tape(trial, upstream)
    except Exception as error:
        what = f"asking for the gradient raises {described(error)}"
        cause = "the function, or its gradient, cannot be differentiated as TensorFlow does it"
        yield trial.finding(what, cause, _GRAD)
        return
    dense = [None if one is None else tf.convert_to_tensor(one).numpy() for one in gradients]
    skip_if(grad is None and not any(one is not None and np.any(one) for one in dense), _ZEROS)
    if not trial.repeats:
        yield trial.partly("its values: two calls do not return the same")
        return
    for number, (one, tensor) in enumerate(zip(dense, trial.base.sample.tensors, strict=True)):
        if one is None or not one.size:
            if _is_real(tensor.dtype):
                yield trial.partly(f"argument {number} has no gradient")
        elif np.dtype(tensor.dtype.as_numpy_dtype) not in _STEPS:
            yield trial.partly(f"values for argument {number}: {tensor.dtype.name} is too coarse")
        else:
            yield from _of_directions(trial, number, upstream, one)


def _upstream(trial: Trial) -> list[Any]:
    """Return random upstream gradients for the results."""
    generator = np.random.default_rng(_SEED)
    pairs = zip(trial.first_results, trial.subject.outputs.dtypes, strict=True)
    return [
        tf.constant(generator.uniform(0.5, 1.5, array.shape), dtype)
        if _is_real(dtype)
        else tf.zeros(array.shape, tf.float32 if dtype == tf.string else dtype)
        for array, dtype in pairs
    ]


def _of_given(trial: Trial, upstream: Sequence[Any]) -> Iterator[Finding]:
    """Check the value that the user's `grad` returns when it is called directly."""
    subject = trial.subject
    tensors = trial.base.sample.tensors
    results = [
        tf.constant(array.tolist() if dtype == tf.string else array, dtype)
        for array, dtype in zip(trial.first_results, subject.outputs.dtypes, strict=True)
    ]
    pack = subject.outputs.pack
    assert subject.user.grad is not None
    try:
        given = subject.user.grad(
            tuple(subject.inputs.pack(tensors)), pack(results), pack(upstream)
        )
    except Exception as error:
        cause = "it is called as grad(inputs, results, upstream), with tuples and tensors"
        yield trial.finding(f"grad raises {described(error)}", cause, _GRAD)
        return
    try:
        flat = subject.inputs.flatten_gradients(given)
    except Exception as error:
        names = lines.names(subject)
        listed = ", ".join(f"gradient_of_{name}" for name in names)
        count = counted(len(names), "argument")
        what = f"grad returns another number of gradients than there are arguments ({count})"
        cause = f"one is left out that does not matter, or wrapped: {first_line(error)}"
        yield trial.finding(what, cause, f"return {listed}    # None where there is none")
        return
    for number, (one, tensor) in enumerate(zip(flat, tensors, strict=True)):
        if one is not None:
            yield from _of_one(trial, number, tf.convert_to_tensor(one), tensor)


def _of_one(trial: Trial, number: int, one: Any, tensor: Any) -> Iterator[Finding]:
    name = _name(trial, number)
    argument = f"the gradient of argument {number}"
    if one.dtype != tensor.dtype:
        what = f"{argument} is {one.dtype.name}, and the argument is {tensor.dtype.name}"
        line = f"tf.cast(gradient_of_{name}, {name}.dtype)"
        yield trial.finding(what, "it computes in another precision", line)
    elif one.shape != tensor.shape:
        what = f"{argument} has shape {tuple(one.shape)}, and the argument {tuple(tensor.shape)}"
        cause = "it is not summed over, or not broadcast to, what the function broadcasts or sums"
        size, wanted = one.shape.num_elements(), tensor.shape.num_elements()
        line = f"tf.reshape(gradient_of_{name}, tf.shape({name}))"
        if size > wanted:
            line = f"tf.reduce_sum(gradient_of_{name}, axis=0)"
        elif size < wanted:
            line = f"tf.broadcast_to(gradient_of_{name}, tf.shape({name}))"
        yield trial.finding(what, cause, line)


def _by_tape(trial: Trial, upstream: Sequence[Any]) -> list[Any]:
    """Return the gradients that a program gets."""
    subject = trial.subject
    tensors = [tf.identity(tensor) for tensor in trial.base.sample.tensors]
    subject.calls += 1
    with tf.GradientTape() as tape:
        tape.watch([tensor for tensor in tensors if _is_real(tensor.dtype)])
        results = tf.nest.flatten(subject.program(*subject.nested(tensors)))
    real = [i for i, dtype in enumerate(subject.outputs.dtypes) if _is_real(dtype)]
    gradients: list[Any] = tape.gradient(
        [results[i] for i in real], tensors, [upstream[i] for i in real]
    )
    return gradients


def _of_directions(
    trial: Trial, number: int, upstream: Sequence[Any], one: np.ndarray
) -> Iterator[Outcome]:
    """Compare one gradient with finite differences, along two directions."""
    generator = np.random.default_rng(_SEED)
    differences = _Differences(trial, number, [np.asarray(u.numpy()) for u in upstream])
    for _ in range(2):
        try:
            direction, value, noise = differences.along(generator.normal(size=one.shape))
        except SkipError as why:
            yield trial.partly(f"values for argument {number}: {why}")
            return
        computed = float(np.sum(one.astype(np.float64) * direction))
        limit = _RIGHT * max(abs(value), abs(computed)) + noise
        if not abs(computed - value) <= limit:
            what = (
                f"the gradient of argument {number} is wrong: along a direction it is "
                f"{computed:.4g}, and finite differences say {value:.4g}"
            )
            cause = "a factor or a sign is missing, or `upstream`, or the chain rule"
            line = f"gradient_of_{_name(trial, number)} = upstream * ...    # the derivative"
            if trial.subject.user.grad is None:
                line = "tf.custom_gradient    # or TensorFlow's ops alone in the function"
            yield trial.finding(what, cause, line)
            return


class _Slope(NamedTuple):
    """A derivative, what rounding may add to it, and the slopes above and below, subtracted."""

    value: float
    noise: float
    bend: float


class _Differences:
    """Derivatives of the results, weighted by `upstream`, with respect to one argument."""

    def __init__(self, trial: Trial, number: int, upstream: Sequence[np.ndarray]) -> None:
        self._trial, self._number, self._upstream = trial, number, upstream
        values = np.asarray(trial.base.sample.tensors[number].numpy())
        self._values = values.astype(np.float64)
        self._epsilon = float(np.finfo(values.dtype).eps)
        scale = float(np.abs(self._values).max())
        self._step = _STEPS[values.dtype] * (scale or 1.0)
        self._here: float | None = None

    def along(self, direction: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Return a direction, the derivative there and its rounding error, or raise a SkipError."""
        with contextlib.suppress(SkipError):
            return direction, *self._along(direction)
        # Small values may need small steps.
        sizes = np.abs(self._values)
        if largest := sizes.max():
            direction = direction * (np.maximum(sizes, 1e-3 * largest) / largest)
        return direction, *self._along(direction)

    def _along(self, direction: np.ndarray) -> tuple[float, float]:
        length = float(np.abs(direction).max())
        unit = direction / max(length, 1e-9)
        near, far = self._slope(unit, self._step / 2), self._slope(unit, self._step)
        noise = near.noise + far.noise
        # A smooth function's bend shrinks with the step. The part that does not is a kink.
        kink = abs(2 * near.bend - far.bend) / 2
        is_smooth = abs(near.value - far.value) + kink <= _SMOOTH * abs(near.value) + noise
        skip_if(not is_smooth, "the results are not smooth there")
        return length * (4 * near.value - far.value) / 3, 2 * length * noise

    def _slope(self, unit: np.ndarray, step: float) -> _Slope:
        up, size = self._weighted(self._values + step * unit)
        down, _ = self._weighted(self._values - step * unit)
        if self._here is None:
            self._here, _ = self._weighted(self._values)
        noise = 16 * self._epsilon * size / step
        return _Slope((up - down) / (2 * step), noise, (up - 2 * self._here + down) / step)

    def _weighted(self, values: np.ndarray) -> tuple[float, float]:
        """Return the sum of the results times `upstream`, and the sum of the terms' magnitudes."""
        tensors = list(self._trial.base.sample.tensors)
        tensors[self._number] = tf.constant(values, tensors[self._number].dtype)
        called = self._trial.subject.call(Sample(tuple(tensors)))
        skip_if(called.error, f"close to these values it raises {called.raised}")
        total = size = 0.0
        arrays = self._trial.subject.arrays(called)
        dtypes = self._trial.subject.outputs.dtypes
        for array, weights, dtype in zip(arrays, self._upstream, dtypes, strict=True):
            if not _is_real(dtype):
                continue
            is_alike = array.shape == weights.shape
            skip_if(not is_alike, "close to these values results have other shapes")
            terms = array.astype(np.float64) * weights
            total, size = total + float(terms.sum()), size + float(np.abs(terms).sum())
        skip_if(not np.isfinite(total), "the results are not finite there")
        return total, size


def _is_real(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating)


def _name(trial: Trial, number: int) -> str:
    return "x" if trial.subject.inputs.nested else lines.name(trial.subject, number)


_BATCH = 3
_BATCH_ROUNDING = 1e-4

_BATCH_CAUSES = {
    "shared": "an argument that is the same for all elements has an axis of size 1 in front, and "
    'all of them with vmap_method="broadcast_all"',
    "shape": "it reduces, or adds, the axis in front, which is that of the batch",
    "values": "it mixes elements of the batch: it wants axis=-1, say, where it has axis=0 or none",
}


def vectorization(trial: Trial) -> Iterator[Outcome]:
    """Check that a call for a batch, by `vmap_method`, returns the results of a loop."""
    subject = trial.subject
    method = subject.options.vmap_method
    skip_if(method not in OF_BATCHES, "no vmap_method is declared that makes one call")
    tensors = trial.base.sample.tensors
    skip_if(
        not tensors or not subject.outputs.dtypes or subject.inputs.composite,
        "it has no arguments or no results that are tensors",
    )
    trial.skip_unless_repeating()
    shared: list[int | None] = [None]
    if method != BROADCAST_ALL and len(tensors) > 1:
        shared += range(len(tensors))
    for number in shared:
        found = _of_batch(trial, number)
        if found is not None:
            what, cause = found
            better = "broadcast_all" if cause == "shared" else "sequential"
            line = f'vmap_method="{better}"    # in the place of vmap_method="{method}"'
            yield trial.finding(what, _BATCH_CAUSES[cause], line)
            return


def _of_batch(trial: Trial, shared: int | None) -> tuple[str, str] | None:
    """Check one batch, and return what is wrong with the key of the cause, or None."""
    # `shared` is the number of an argument that is the same for all elements, or None.
    subject = trial.subject
    elements = [one.sample for one in trial.variants(_BATCH)]
    if shared is not None:
        elements = [_with(one, shared, trial.base.sample.tensors[shared]) for one in elements]
    single: list[list[np.ndarray]] = []
    for sample in elements:
        called = subject.call(sample)
        skip_if(called.error, f"with other values it raises {called.raised}")
        single.append(subject.arrays(called))
    try:
        wanted = [np.stack(results) for results in zip(*single, strict=True)]
    except ValueError:
        raise SkipError("the results of elements differ in their shapes") from None
    called = _batch_call(trial, elements, shared)
    where = "" if shared is None else f", argument {shared} the same for all"
    shape = "shape" if shared is None else "shared"
    what = f"for a batch of {_BATCH}{where}"
    if called.error is not None:
        return f"{what}, it raises {called.raised}", shape
    flat = structures.Outputs(array_specs.without_shapes(subject.outputs.structure), strict=True)
    results = called.outs or flat.flatten(called.returned, subject.function)
    pairs = zip(results, subject.outputs.dtypes, strict=True)
    got = [subject.as_array(value, dtype) for value, dtype in pairs]
    for index, one, other in differing(got, wanted, _BATCH_ROUNDING):
        if one.shape != other.shape or one.dtype != other.dtype:
            found = f"result {index} is {one.dtype} of shape {one.shape}"
            want = f"{other.dtype} of shape {other.shape}"
            return f"{what}, {found}, and a loop returns {want}", shape
        found = f"result {index} is {lines.shown(one)}"
        return f"{what}, {found}, and a loop returns {lines.shown(other)}", "values"
    return None


def _batch_call(trial: Trial, elements: Sequence[Sample], shared: int | None) -> Called:
    subject = trial.subject
    tensors = []
    for number, parts in enumerate(zip(*(sample.tensors for sample in elements), strict=True)):
        tensors.append(tf.stack(parts[:1] if number == shared else parts))
    specs = [array_specs.led(spec, _BATCH) for spec in subject.out_specs(elements[0])]
    return subject.call_on(subject.values(Sample(tuple(tensors))), specs)


def _with(sample: Sample, number: int, tensor: object) -> Sample:
    tensors = list(sample.tensors)
    tensors[number] = tensor
    return Sample(tuple(tensors), sample.promised)
