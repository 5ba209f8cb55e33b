"""Checks that programs of TensorFlow and JAX, gradients and batches get the right values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall import _control
from hostcall._functions.options import BROADCAST_ALL, OF_BATCHES
from hostcall._ops import array_specs, requested_routes, structures, used_variables
from hostcall._ops.requested_routes import AUTO, PARTITION
from hostcall._ops.structures import BoundedSpec
from hostcall._tf.graph import function_defs as defs
from hostcall._tools.check import lines
from hostcall._tools.check.arguments import Sample, tensor_of
from hostcall._tools.check.report import Finding, Suggestion
from hostcall._tools.check.subject import Called, described, first_line
from hostcall._tools.check.trial import DIFFERS, Outcome, SkipError, Trial, differences, skip_if
from hostcall_runtime import _errors, _fire_and_forget
from hostcall_runtime._errors import counted

_DISABLED = "hostcall is disabled: hostcall.enable() switches it on"
_CAUSE_ELSEWHERE = (
    "it depends on where it is called: its thread (thread-local state, event loops, libraries for "
    "the main thread alone), the stack, or whether arrays may be written to"
)

_ASSIGNED = (
    "a compiled program that assigns the variable does so when it has ended, and the function sees "
    "the value from before"
)

Run = Callable[[], list[np.ndarray]]  # runs a program and returns its results as new arrays


def compiled(trial: Trial) -> Iterator[Outcome]:
    """Check that plain and compiled programs get the results that the function returns."""
    skip_if(not _control.is_enabled(), _DISABLED)
    plain = _runner(trial, requested_routes.current())
    jitted = _runner(trial, AUTO, jit_compile=True)
    yield from _compared(trial, {"a plain graph": plain, "a compiled program": jitted})
    for name in used_variables.referred_to(trial.subject.user_function):
        yield Suggestion(trial.check, _ASSIGNED, f"pass {name} as an argument")


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
    skip_if(not subject.is_callback, "it is not a hostcall.callback")
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

    def call(*tensors: Any) -> list[tf.Tensor]:
        # TensorFlow mishandles four-bit integers, so they go in and out as eight-bit ones.
        inputs = [tf.cast(one, like.dtype) for one, like in zip(tensors, given, strict=True)]
        results = subject.program(*subject.nested(inputs))
        if not subject.outputs.dtypes:
            return []  # not the op that a call without results returns
        flat = tf.nest.flatten(results, expand_composites=True)
        return [tf.cast(result, defs.wide(result.dtype)) for result in flat]

    program = tf.function(call, jit_compile=jit_compile, autograph=False)

    def run() -> list[np.ndarray]:
        tensors = [tf.identity(tf.cast(one, defs.wide(one.dtype))) for one in given]
        with requested_routes.scope(route=route):
            # TensorFlow warns of functions that a call traces and that are then thrown away.
            results = program.get_concrete_function(*tensors)(*tensors)
        if subject.options.call_log is not None:
            _fire_and_forget.barrier()
        pairs = zip(results, subject.outputs.dtypes, strict=True)
        return [np.array(tf.cast(tensor, dtype).numpy()) for tensor, dtype in pairs]

    return run


def _compared(trial: Trial, runs: dict[str, Run]) -> Iterator[Outcome]:
    """Compare programs, by their names, with the function itself."""
    subject = trial.subject
    wanted = [*map(_with_bytes, trial.first_results)]
    for name, run in runs.items():
        subject.calls += 1
        try:
            got = [*map(_with_bytes, run())]
        except Exception as error:
            found = [f"{name} raises {described(_errors.last_error(error) or error)}"]
        else:
            different = differences(got, wanted, ", and the function itself returns ")
            found = [f"in {name} {one}" for one in different if trial.repeats]
        if found:
            where = f"def {subject.name}(...): ..."
            line = f"{where}    # the same on each thread, by its arguments alone"
            yield trial.finding(found[0], _CAUSE_ELSEWHERE, line)
            return
    if subject.outputs.dtypes and not trial.repeats:
        yield trial.partly(f"its values: {DIFFERS}")


def _with_bytes(array: np.ndarray) -> np.ndarray:
    """Return an array with bytes in the place of texts."""
    is_text = array.dtype.kind in "OSU"
    return np.asarray(tf.constant(array.tolist()).numpy()) if is_text else array


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
        not any(dtype.is_floating for dtype in subject.outputs.dtypes) or subject.inputs.composite,
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
        yield trial.partly(f"its values: {DIFFERS}")
        return
    for number, (one, tensor) in enumerate(zip(dense, trial.base.sample.tensors, strict=True)):
        if one is None or not one.size:
            if tensor.dtype.is_floating:
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
        if dtype.is_floating
        else tf.zeros(array.shape, tf.float32 if dtype == tf.string else dtype)
        for array, dtype in pairs
    ]


def _of_given(trial: Trial, upstream: Sequence[Any]) -> Iterator[Finding]:
    """Check the value that the user's `grad` returns when it is called directly."""
    subject = trial.subject
    tensors = trial.base.sample.tensors
    pairs = zip(trial.first_results, subject.outputs.dtypes, strict=True)
    results = [tensor_of(array, dtype) for array, dtype in pairs]
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
    name = lines.name(trial.subject, number)
    argument = f"the gradient of argument {number}"
    if one.dtype != tensor.dtype:
        what = f"{argument} is {one.dtype.name}, and the argument is {tensor.dtype.name}"
        line = f"tf.cast(gradient_of_{name}, {name}.dtype)"
        yield trial.finding(what, "it computes in another precision", line)
    elif one.shape != tensor.shape:
        what = f"{argument} has shape {tuple(one.shape)}, and the argument {tuple(tensor.shape)}"
        cause = "it is not summed over, or not broadcast to, what the function broadcasts or sums"
        line = f"tf.broadcast_to(gradient_of_{name}, tf.shape({name}))"
        if one.shape.num_elements() > tensor.shape.num_elements():
            line = f"tf.reduce_sum(gradient_of_{name}, axis=0)"
        yield trial.finding(what, cause, line)


def _by_tape(trial: Trial, upstream: Sequence[Any]) -> list[Any]:
    """Return the gradients that a program gets."""
    subject = trial.subject
    tensors = [tf.identity(tensor) for tensor in trial.base.sample.tensors]
    subject.calls += 1
    with tf.GradientTape() as tape:
        tape.watch([tensor for tensor in tensors if tensor.dtype.is_floating])
        results = tf.nest.flatten(subject.program(*subject.nested(tensors)))
    real = [i for i, dtype in enumerate(subject.outputs.dtypes) if dtype.is_floating]
    taped, given = [results[i] for i in real], [upstream[i] for i in real]
    return list(tape.gradient(taped, tensors, given))


def _of_directions(
    trial: Trial, number: int, upstream: Sequence[Any], one: np.ndarray
) -> Iterator[Outcome]:
    """Compare one gradient with finite differences, along two directions."""
    generator = np.random.default_rng(_SEED)
    sizes = np.abs(np.asarray(trial.base.sample.tensors[number].numpy()).astype(np.float64))
    # Small values may need small steps.
    by_size = np.maximum(sizes / (sizes.max() or 1.0), 1e-3)
    skipped = []
    for scale in (1.0, by_size):
        direction = generator.normal(size=one.shape) * scale
        try:
            value, noise = _derivative(trial, number, upstream, direction)
        except SkipError as why:
            skipped.append(f"values for argument {number}: {why}")
            continue
        computed = float(np.sum(one.astype(np.float64) * direction))
        limit = _RIGHT * max(abs(value), abs(computed)) + noise
        if not abs(computed - value) <= limit:
            what = (
                f"the gradient of argument {number} is wrong: along a direction it is "
                f"{computed:.4g}, and finite differences say {value:.4g}"
            )
            cause = "a factor or a sign is missing, or `upstream`, or the chain rule"
            name = lines.name(trial.subject, number)
            line = f"gradient_of_{name} = upstream * ...    # the derivative"
            if trial.subject.user.grad is None:
                line = "tf.custom_gradient    # or TensorFlow's ops alone in the function"
            yield trial.finding(what, cause, line)
            return
    if len(skipped) == 2:
        yield trial.partly(skipped[0])


def _derivative(
    trial: Trial, number: int, upstream: Sequence[Any], direction: np.ndarray
) -> tuple[float, float]:
    """Return the derivative along a direction and its rounding error, or raise a SkipError."""
    tensor = trial.base.sample.tensors[number]
    values = np.asarray(tensor.numpy()).astype(np.float64)
    dtype = np.dtype(tensor.dtype.as_numpy_dtype)
    longest = _STEPS[dtype] * (float(np.abs(values).max()) or 1.0)
    length = max(float(np.abs(direction).max()), 1e-9)

    def weighted(distance: float) -> tuple[float, float]:
        moved = tf.constant(values + distance / length * direction, tensor.dtype)
        called = trial.subject.call(trial.base.sample.with_tensor(number, moved))
        skip_if(called.error, f"close to these values it raises {called.raised}")
        return _weighted(trial, upstream, trial.subject.arrays(called))

    here, _ = _weighted(trial, upstream, trial.first_results)
    slopes: list[float] = []
    bends: list[float] = []
    noise = 0.0
    for step in (longest / 2, longest):
        (up, size), (down, _) = weighted(step), weighted(-step)
        slopes.append((up - down) / (2 * step))
        bends.append((up - 2 * here + down) / step)
        noise += 16 * float(np.finfo(dtype).eps) * size / step
    near, far = slopes
    # A smooth function's bend shrinks with the step. The part that does not is a kink.
    kink = abs(2 * bends[0] - bends[1]) / 2
    is_smooth = abs(near - far) + kink <= _SMOOTH * abs(near) + noise
    skip_if(not is_smooth, "the results are not smooth there")
    return length * (4 * near - far) / 3, 2 * length * noise


def _weighted(
    trial: Trial, upstream: Sequence[Any], arrays: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Return the sum of real results times `upstream`, and the sum of the terms' magnitudes."""
    total = size = 0.0
    for array, weights, dtype in zip(arrays, upstream, trial.subject.outputs.dtypes, strict=True):
        if dtype.is_floating:
            is_alike = array.shape == weights.shape
            skip_if(not is_alike, "close to these values results have other shapes")
            terms = array.astype(np.float64) * weights.numpy()
            total, size = total + float(terms.sum()), size + float(np.abs(terms).sum())
    skip_if(not np.isfinite(total), "the results are not finite there")
    return total, size


_BATCH = 3
_BATCH_ROUNDING = 1e-4

_BATCH_CAUSES = {
    "shared": "an argument that is the same for all elements has an axis of size 1 in front, and "
    'all of them with vmap_method="broadcast_all"',
    "shape": "it reduces, or adds, the axis in front, which is that of the batch",
    "values": "it mixes elements of the batch: it may want axis=-1 where it has axis=0 or none",
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
    skip_if(not trial.repeats, DIFFERS)
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
    called = trial.variants(_BATCH)
    if shared is not None:
        same = trial.base.sample.tensors[shared]
        called = [subject.call(one.sample.with_tensor(shared, same)) for one in called]
    for one in called:
        skip_if(one.error, f"with other values it raises {one.raised}")
    try:
        wanted = [np.stack(some) for some in zip(*map(subject.arrays, called), strict=True)]
    except ValueError:
        raise SkipError("the results of elements differ in their shapes") from None
    batch = _batch_call(trial, [one.sample for one in called], shared)
    where = "" if shared is None else f", argument {shared} the same for all"
    shape = "shape" if shared is None else "shared"
    what = f"for a batch of {_BATCH}{where}"
    if batch.error is not None:
        return f"{what}, it raises {batch.raised}", shape
    flat = structures.Outputs(array_specs.without_shapes(subject.outputs.structure), strict=True)
    results = batch.outs or flat.flatten(batch.returned, subject.function)
    pairs = zip(results, subject.outputs.dtypes, strict=True)
    got = [subject.as_array(value, dtype) for value, dtype in pairs]
    found = differences(got, wanted, ", and a loop returns ", _BATCH_ROUNDING)
    if not found:
        return None
    is_alike = [(a.shape, a.dtype) for a in got] == [(a.shape, a.dtype) for a in wanted]
    return f"{what}, {found[0]}", "values" if is_alike else shape


def _batch_call(trial: Trial, elements: Sequence[Sample], shared: int | None) -> Called:
    subject = trial.subject
    parts = zip(*(sample.tensors for sample in elements), strict=True)
    tensors = [tf.stack(one[:1] if i == shared else one) for i, one in enumerate(parts)]
    specs = [array_specs.led(spec, _BATCH) for spec in subject.out_specs(elements[0])]
    return subject.call_on(subject.values(Sample(tuple(tensors))), specs)
