"""Checks of gradients, and of calls that take a whole batch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import array_specs, structures
from hostcall._callbacks.structures import Spec
from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.report import Finding, NotChecked
from hostcall._check.subject import Called
from hostcall._check.trial import Outcome, Trial, same
from hostcall._functions.declaration import BROADCAST_ALL, OF_BATCHES
from hostcall_runtime._errors import counted

_SEED = 20

# The step of finite differences, relative to the largest value, for the precision of each dtype.
_STEPS = {np.dtype(np.float32): 1e-2, np.dtype(np.float64): 1e-4}

# Relative tolerances: between two estimates of a derivative, and between estimate and gradient.
_SMOOTH, _RIGHT = 0.02, 0.05


_ZEROS = (
    "all gradients are zeros, as they are of a function that computes with arrays: "
    "hostcall.callback(..., grad=...) gives it another one"
)


def gradient(trial: Trial) -> Iterator[Outcome]:
    """Check that the gradient has the arguments' shapes and agrees with finite differences."""
    subject = trial.subject
    if subject.declared.grad is None and not subject.eager:
        yield NotChecked("gradient", "it has none: no grad= is declared")
        return
    if not any(map(_is_real, subject.outputs.dtypes)) or subject.inputs.composite:
        yield NotChecked("gradient", "no result is a tensor of real numbers")
        return
    upstream = _upstream(trial)
    if subject.declared.grad is not None:
        found = list(_of_given(trial, upstream))
        yield from found
        if found:
            return
    gradients = _by_tape(trial, upstream)
    if isinstance(gradients, Finding):
        yield gradients
        return
    dense = [None if one is None else tf.convert_to_tensor(one).numpy() for one in gradients]
    if subject.declared.grad is None and not any(one is not None and np.any(one) for one in dense):
        yield NotChecked("gradient", _ZEROS)
        return
    yield from _of_values(trial, upstream, dense)


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
    arguments = tuple(subject.inputs.pack(tensors))
    assert subject.declared.grad is not None
    try:
        given = subject.declared.grad(arguments, pack(results), pack(upstream))
    except Exception as error:
        what = f"grad raises {type(error).__name__}: {_first_line(error)}"
        cause = "it is called as grad(inputs, results, upstream), with tuples and tensors"
        yield Finding("gradient", what, cause, "def grad(inputs, results, upstream): ...")
        return
    try:
        flat = subject.inputs.flatten_gradients(given)
    except Exception as error:
        names = lines.names(subject)
        listed = ", ".join(f"gradient_of_{name}" for name in names)
        count = counted(len(names), "argument")
        what = f"grad returns another number of gradients than there are arguments ({count})"
        cause = f"one is left out that does not matter, or wrapped: {_first_line(error)}"
        yield Finding("gradient", what, cause, f"return {listed}    # None where there is none")
        return
    for number, (one, tensor) in enumerate(zip(flat, tensors, strict=True)):
        if one is not None:
            yield from _of_one(trial, number, tf.convert_to_tensor(one), tensor)


def _of_one(trial: Trial, number: int, one: Any, tensor: Any) -> Iterator[Finding]:
    name = _name(trial, number)
    if one.dtype != tensor.dtype:
        what = f"the gradient of argument {number} is {one.dtype.name}, and the argument is "
        what += tensor.dtype.name
        line = f"tf.cast(gradient_of_{name}, {name}.dtype)"
        yield Finding("gradient", what, "it computes in another precision", line)
    elif one.shape != tensor.shape:
        what = f"the gradient of argument {number} has shape {tuple(one.shape)}, and the argument "
        what += str(tuple(tensor.shape))
        cause = "it is not summed over, or not broadcast to, what the function broadcasts or sums"
        line = f"tf.reshape(gradient_of_{name}, tf.shape({name}))"
        if one.shape.num_elements() != tensor.shape.num_elements():
            line = f"tf.reduce_sum(gradient_of_{name}, axis=0)"
            if one.shape.num_elements() < tensor.shape.num_elements():
                line = f"tf.broadcast_to(gradient_of_{name}, tf.shape({name}))"
        yield Finding("gradient", what, cause, line)


def _by_tape(trial: Trial, upstream: Sequence[Any]) -> list[Any] | Finding:
    """Return the gradients that a program gets, or a finding if that raises."""
    subject = trial.subject
    tensors = [tf.identity(tensor) for tensor in trial.base.sample.tensors]
    subject.calls += 1
    try:
        with tf.GradientTape() as tape:
            tape.watch([tensor for tensor in tensors if _is_real(tensor.dtype)])
            results = tf.nest.flatten(subject.program(*subject.nested(tensors)))
        real = [i for i, dtype in enumerate(subject.outputs.dtypes) if _is_real(dtype)]
        gradients: list[Any] = tape.gradient(
            [results[i] for i in real], tensors, [upstream[i] for i in real]
        )
    except Exception as error:
        what = f"asking for the gradient raises {type(error).__name__}: {_first_line(error)}"
        cause = "the function, or its gradient, cannot be differentiated as TensorFlow does it"
        return Finding("gradient", what, cause, "def grad(inputs, results, upstream): ...")
    return gradients


def _of_values(
    trial: Trial, upstream: Sequence[Any], gradients: Sequence[Any]
) -> Iterator[Outcome]:
    """Compare gradients with finite differences, one argument after the other."""
    if not trial.repeats:
        yield NotChecked("gradient", "its values: two calls do not return the same", partly=True)
        return
    for number, one in enumerate(gradients):
        tensor = trial.base.sample.tensors[number]
        if one is None or not one.size:
            if _is_real(tensor.dtype):
                why = f"argument {number} has no gradient"
                yield NotChecked("gradient", why, partly=True)
            continue
        if tensor.dtype.as_numpy_dtype not in (np.float32, np.float64):
            why = f"values for argument {number}: {tensor.dtype.name} is too coarse"
            yield NotChecked("gradient", why, partly=True)
            continue
        yield from _of_directions(trial, number, upstream, one)


def _of_directions(
    trial: Trial, number: int, upstream: Sequence[Any], one: np.ndarray
) -> Iterator[Outcome]:
    generator = np.random.default_rng(_SEED)
    differences = _Differences(trial, number, [np.asarray(u.numpy()) for u in upstream])
    for _ in range(2):
        direction = generator.normal(size=one.shape)
        estimate = differences.along(direction)
        if isinstance(estimate, str):  # small values may need small steps
            direction = direction * differences.scales
            estimate = differences.along(direction)
        if isinstance(estimate, str):
            why = f"values for argument {number}: {estimate}"
            yield NotChecked("gradient", why, partly=True)
            return
        computed = float(np.sum(one.astype(np.float64) * direction))
        limit = _RIGHT * max(abs(estimate.value), abs(computed)) + estimate.noise
        if not abs(computed - estimate.value) <= limit:
            what = (
                f"the gradient of argument {number} is wrong: along a direction it is "
                f"{computed:.4g}, and finite differences say {estimate.value:.4g}"
            )
            cause = "a factor or a sign is missing, or `upstream`, or the chain rule"
            line = f"gradient_of_{_name(trial, number)} = upstream * ...    # the derivative"
            if trial.subject.declared.grad is None:
                line = "tf.custom_gradient    # or TensorFlow's ops alone in the function"
            yield Finding("gradient", what, cause, line)
            return


@dataclasses.dataclass(frozen=True)
class _Estimate:
    """A derivative by finite differences.

    Attributes:
      value: the derivative.
      noise: the largest error that rounding may cause.
      bend: the slope above the point minus the slope below it.
    """

    value: float
    noise: float
    bend: float = 0.0


class _NoSlopeError(Exception):
    """Error: the derivative does not exist, for the reason in the text."""


class _Differences:
    """Derivatives of the results, weighted by `upstream`, with respect to one argument."""

    def __init__(self, trial: Trial, number: int, upstream: Sequence[np.ndarray]) -> None:
        self._trial, self._number, self._upstream = trial, number, upstream
        values = np.asarray(trial.base.sample.tensors[number].numpy())
        self._values = values.astype(np.float64)
        self._dtype = values.dtype
        scale = float(np.abs(self._values).max())
        self._step = _STEPS[values.dtype] * (scale or 1.0)

    @property
    def scales(self) -> np.ndarray:
        """The relative sizes of the values, by which steps are scaled down."""
        sizes = np.abs(self._values)
        largest = sizes.max()
        return np.maximum(sizes, 1e-3 * largest) / largest if largest else np.ones_like(sizes)

    def along(self, direction: np.ndarray) -> _Estimate | str:
        """Return the derivative in a direction, or the reason why it does not exist."""
        unit = direction / max(float(np.abs(direction).max()), 1e-9)
        length = float(np.abs(direction).max())
        try:
            near, far = self._slope(unit, self._step / 2), self._slope(unit, self._step)
        except _NoSlopeError as error:
            return str(error)
        noise = near.noise + far.noise
        # A smooth function's bend shrinks with the step. The part that does not is a kink.
        kink = abs(2 * near.bend - far.bend) / 2
        if not abs(near.value - far.value) + kink <= _SMOOTH * abs(near.value) + noise:
            return "the results are not smooth there"
        return _Estimate(length * (4 * near.value - far.value) / 3, 2 * length * noise)

    def _slope(self, unit: np.ndarray, step: float) -> _Estimate:
        up, size = self._weighted(self._values + step * unit)
        down, _ = self._weighted(self._values - step * unit)
        here, _ = self._here
        noise = 16 * float(np.finfo(self._dtype).eps) * size / step
        return _Estimate((up - down) / (2 * step), noise, (up - 2 * here + down) / step)

    @functools.cached_property
    def _here(self) -> tuple[float, float]:
        return self._weighted(self._values)

    def _weighted(self, values: np.ndarray) -> tuple[float, float]:
        """Return the sum of the results times `upstream`, and the sum of the terms' magnitudes."""
        tensors = list(self._trial.base.sample.tensors)
        tensors[self._number] = tf.constant(values, tensors[self._number].dtype)
        called = self._trial.subject.call(Sample(tuple(tensors)))
        if called.error is not None:
            raise _NoSlopeError(f"close to these values it raises {called.raised}")
        total = size = 0.0
        arrays = self._trial.subject.arrays(called)
        dtypes = self._trial.subject.outputs.dtypes
        for array, weights, dtype in zip(arrays, self._upstream, dtypes, strict=True):
            if not _is_real(dtype):
                continue
            if array.shape != weights.shape:
                raise _NoSlopeError("close to these values results have other shapes")
            terms = array.astype(np.float64) * weights
            total, size = total + float(terms.sum()), size + float(np.abs(terms).sum())
        if not np.isfinite(total):
            raise _NoSlopeError("the results are not finite there")
        return total, size


def _is_real(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating)


def _name(trial: Trial, number: int) -> str:
    names = lines.names(trial.subject)
    return names[number] if len(names) > number and not trial.subject.inputs.nested else "x"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else ""


_SIZE = 3
_ROUNDING = 1e-4

_CAUSES = {
    "shared": "an argument that is the same for all elements has an axis of size 1 in front, and "
    'all of them with vmap_method="broadcast_all"',
    "shape": "it reduces, or adds, the axis in front, which is that of the batch",
    "values": "it mixes elements of the batch: it wants axis=-1, say, where it has axis=0 or none",
}


def vectorization(trial: Trial) -> Iterator[Outcome]:
    """Check that a call for a batch, by `vmap_method`, returns the results of a loop."""
    subject = trial.subject
    method = subject.declaration.vmap_method
    if method not in OF_BATCHES:
        yield NotChecked("vectorization", "no vmap_method is declared that makes one call")
        return
    tensors = trial.base.sample.tensors
    if not tensors or not subject.outputs.dtypes or subject.inputs.composite:
        yield NotChecked("vectorization", "it has no arguments or no results that are tensors")
        return
    if not trial.repeats:
        yield NotChecked("vectorization", "two calls do not return the same")
        return
    shared: list[int | None] = [None]
    if method != BROADCAST_ALL and len(tensors) > 1:
        shared += range(len(tensors))
    for number in shared:
        outcome = _of_batch(trial, number)
        if outcome is not None:
            yield outcome
            return


def _of_batch(trial: Trial, shared: int | None) -> Outcome | None:
    """Check one batch, and return the outcome, or None if the results agree.

    Args:
      trial: the run.
      shared: the number of the argument that is the same for all elements, or None.
    """
    subject = trial.subject
    base = trial.base.sample
    tried = trial.variants(_SIZE)
    if isinstance(tried, str):
        return NotChecked("vectorization", tried)
    elements = [one.sample for one in tried]
    if shared is not None:
        elements = [_with(sample, shared, base.tensors[shared]) for sample in elements]
    single: list[list[np.ndarray]] = []
    for sample in elements:
        called = subject.call(sample)
        if called.error is not None:
            return NotChecked("vectorization", f"with other values it raises {called.raised}")
        single.append(subject.arrays(called))
    try:
        wanted = [np.stack(results) for results in zip(*single, strict=True)]
    except ValueError:
        return NotChecked("vectorization", "the results of elements differ in their shapes")
    called = _call(trial, elements, shared)
    where = "" if shared is None else f", argument {shared} the same for all"
    shape = "shape" if shared is None else "shared"
    what = f"for a batch of {_SIZE}{where}"
    if called.error is not None:
        return _finding(trial, f"{what}, it raises {called.raised}", shape)
    flat = structures.Outputs(array_specs.without_shapes(subject.outputs.structure), strict=True)
    results = called.outs or flat.flatten(called.returned, subject.function)
    pairs = zip(results, subject.outputs.dtypes, strict=True)
    got = [subject.as_array(value, dtype) for value, dtype in pairs]
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            found = f"result {index} is {one.dtype} of shape {one.shape}"
            want = f"{other.dtype} of shape {other.shape}"
            return _finding(trial, f"{what}, {found}, and a loop returns {want}", shape)
        if not same([one], [other], _ROUNDING):
            found = f"result {index} is {lines.shown(one)}"
            text = f"{what}, {found}, and a loop returns {lines.shown(other)}"
            return _finding(trial, text, "values")
    return None


def _call(trial: Trial, elements: Sequence[Sample], shared: int | None) -> Called:
    subject = trial.subject
    tensors = []
    for number, parts in enumerate(zip(*(sample.tensors for sample in elements), strict=True)):
        tensors.append(tf.stack(parts[:1] if number == shared else parts))
    specs: list[Spec] = []
    if subject.declaration.out:
        specs = [array_specs.led(spec, _SIZE) for spec in subject.specs(elements[0].specs)]
    return subject.call_on(subject.values(Sample(tuple(tensors))), specs)


def _with(sample: Sample, number: int, tensor: Any) -> Sample:
    tensors = list(sample.tensors)
    tensors[number] = tensor
    return Sample(tuple(tensors), sample.promised)


def _finding(trial: Trial, what: str, cause: str) -> Finding:
    method = trial.subject.declaration.vmap_method
    better = "broadcast_all" if cause == "shared" else "sequential"
    line = f'vmap_method="{better}"    # in the place of vmap_method="{method}"'
    return Finding("vectorization", what, _CAUSES[cause], line)
