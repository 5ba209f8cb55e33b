"""Checks of results: number, dtypes, shapes, also for empty, scalar, huge and strided inputs."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from hostcall._ops import advice
from hostcall._ops.structures import BoundedSpec, Spec, admits, static_shape
from hostcall._tools.check import lines
from hostcall._tools.check.arguments import Sample
from hostcall._tools.check.subject import Called, Subject, UnsizedError, described
from hostcall._tools.check.trial import DIFFERS, Outcome, Trial, differences, skip_if
from hostcall_runtime import _remedies
from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A difference between results and their declaration."""

    kind: str  # "count", "dtypes" or "shapes": the check that looks for it
    what: str  # a description in words
    cause: str
    line: str = ""  # none for shapes, which `_written` finds
    index: int = 0  # the index of the result


def _problem_of(subject: Subject, called: Called) -> _Problem | None:
    """Return the first difference between a call's results and the declaration, or None."""
    dtypes = subject.outputs.dtypes
    try:
        results = subject.results(called)
    except (ValueError, TypeError, IndexError) as error:
        what = f"it returned another structure than declared: {described(error)}"
        return _of_count(subject, called, what)
    if len(results) != len(dtypes):
        what = f"it returned {counted(len(results), 'value')}, and declared: {len(dtypes)}"
        return _of_count(subject, called, what)
    arrays = []
    for index, (value, dtype) in enumerate(zip(results, dtypes, strict=True)):
        array, actual = _converted(subject, value, dtype)
        if array is None:
            what = f"result {index} is {actual}, and declared is {dtype.name}"
            return _of_dtype(subject, what, index, "None" if value is None else actual)
        arrays.append(array)
    try:
        specs = subject.specs(called.sample.specs)
    except Exception as error:
        what = f"the shape function fails for {called.sample}: {described(error)}"
        cause = "the shape function computes with sizes that these arguments do not have"
        return _Problem("shapes", what, cause)
    for index, (array, spec) in enumerate(zip(arrays, specs, strict=True)):
        if not admits(spec, array.shape):
            what = f"result {index} has shape {array.shape} for {called.sample}, and declared is "
            cause = "the declared shape is a constant, and the shape of the result is not"
            if subject.has_shape_function:
                cause = "the shape function does not say how sizes follow from those of arguments"
            return _Problem("shapes", what + _shape(spec), cause, index=index)
    return None


def _of_count(subject: Subject, called: Called, what: str) -> _Problem:
    remedy = subject.outputs.remedy_of_count(called.returned)
    return _Problem("count", what, remedy.cause, remedy.line)


def _of_dtype(subject: Subject, what: str, index: int, actual: str) -> _Problem:
    dtypes = subject.outputs.dtypes
    remedy = _remedies.for_dtype(index, len(dtypes), dtypes[index].name, actual)
    return _Problem("dtypes", what, remedy.cause, remedy.line)


def _shape(spec: Spec) -> str:
    return str(spec if isinstance(spec, BoundedSpec) else spec.shape)


def _converted(subject: Subject, value: object, dtype: tf.DType) -> tuple[np.ndarray | None, str]:
    """Return the result as an array, or None and its dtype, if that is not the declared one."""
    try:
        array = subject.as_array(value, dtype)
    except Exception as error:
        own = getattr(value, "dtype", None)
        if own is not None:
            return None, str(getattr(own, "name", own))
        return None, type(value).__name__ + (f" ({described(error)})" if value is not None else "")
    if dtype == tf.string:
        fits = array.dtype.kind in "OSU"
    else:
        fits = array.dtype == np.dtype(dtype.as_numpy_dtype)
    return (array, "") if fits else (None, array.dtype.name)


def returns(trial: Trial) -> Iterator[Outcome]:
    """Check that the function returns for the user's arguments."""
    subject, called = trial.subject, trial.base
    if isinstance(called.error, UnsizedError):
        blanks = [tf.TensorSpec(None, dtype) for dtype in subject.outputs.dtypes]
        line = lines.result(subject, [*map(advice.spec_text, blanks)])
        cause = "a size is None or only bounded, and the function is to write into arrays"
        yield trial.finding(str(called.error), cause, line)
    elif called.error is not None:
        cause = "it does not take what programs pass: arrays, and NumPy scalars for rank 0"
        line = _call(trial)
        if subject.arguments.made_up:
            cause = "it does not take these arguments, or not the values that were made up for them"
            line = _with_arrays(trial)
        elif subject.options.borrow:
            cause += "; borrowed arrays are read-only"
        yield trial.finding(f"it raises for {called.sample}: {called.raised}", cause, line)


def count_or_dtypes(trial: Trial) -> Iterator[Outcome]:
    """Check that results have the declared number and structure, or their declared dtypes."""
    for problem in _problems(trial):
        yield trial.finding(problem.what, problem.cause, problem.line)


def shapes(trial: Trial) -> Iterator[Outcome]:
    """Check that results have their declared shapes, for several sizes."""
    problems = _problems(trial)
    for problem in problems:
        yield trial.finding(problem.what, problem.cause, _written(trial, problem.index))
    if not problems:
        yield from _of_unknown_sizes(trial)
    yield from _not_tried(trial)


def _problems(trial: Trial) -> list[_Problem]:
    """Return the first problem that the check which is being made looks for, if there is one."""
    problems = [_problem_of(trial.subject, called) for called in trial.all_sizes]
    return [one for one in problems if one is not None and one.kind == trial.check][:1]


def _of_unknown_sizes(trial: Trial) -> Iterator[Outcome]:
    """Check that the shape function gives no wrong sizes while tracing does not know them."""
    subject, specs = trial.subject, trial.base.sample.specs
    if not subject.has_shape_function or not specs:
        return
    try:
        said = subject.specs([tf.TensorSpec([None] * len(s.shape), s.dtype) for s in specs])
    except Exception:  # hostcall calls it again when sizes are known
        return
    for called in trial.all_sizes:
        arrays = subject.arrays(called)
        for index, (spec, array) in enumerate(zip(said, arrays, strict=True)):
            if not static_shape(spec).is_compatible_with(array.shape):
                what = (
                    f"for arguments of unknown size (None) the shape function says "
                    f"{_shape(spec)} of result {index}, which has shape "
                    f"{array.shape} for {called.sample}"
                )
                cause = "a number takes the place of a size that is None while TensorFlow traces"
                yield trial.finding(what, cause, _written(trial, index))
                return


def _not_tried(trial: Trial) -> Iterator[Outcome]:
    subject = trial.subject
    if not trial.other_sizes and subject.arguments.can_vary and subject.outputs.dtypes:
        yield trial.partly(
            "other sizes than these, since the declared shape is a constant. "
            "tf.TensorSpec([None], ...) in the place of an argument says that its size may vary."
        )
    for called in trial.other_sizes:
        if called.error is None:
            continue
        what = f"it raises for {called.sample}: {called.raised}"
        if called.sample.promised:
            cause = "it does not take all sizes that the tf.TensorSpec admits"
            yield trial.finding(what, cause, _with_arrays(trial))
            return
        yield trial.partly(what)


def _written(trial: Trial, index: int) -> str:
    """Return the line that declares the shapes seen in the calls."""
    subject = trial.subject
    try:
        known = subject.specs(trial.base.sample.specs)
    except Exception:
        known = [tf.TensorSpec(None, dtype) for dtype in subject.outputs.dtypes]
    calls = trial.all_sizes
    given = [[tuple(shape) for shape in called.sample.shapes] for called in calls]
    returned = [[array.shape for array in subject.arrays(called)] for called in calls]
    specs = []
    for number, spec in enumerate(known):
        if number != index and isinstance(spec, BoundedSpec):
            specs.append(advice.spec_text(spec))
            continue
        seen = [(shapes, results[number]) for shapes, results in zip(given, returned, strict=True)]
        expression = lines.shape_expression(subject, seen)
        if expression is None:
            return "route='partition'    # in the place of result=: no rule for the sizes is seen"
        specs.append(f"tf.TensorSpec({expression}, {advice.dtype_text(spec.dtype)})")
    return lines.result(subject, specs)


def _with_arrays(trial: Trial) -> str:
    values = ["np.array(...)" for _ in range(trial.subject.inputs.count)]
    return f"hostcall.check({', '.join([trial.subject.name, *values])})    # with values of yours"


def _call(trial: Trial) -> str:
    subject = trial.subject
    if subject.options.borrow:
        name = lines.name(subject)
        return f"{name} = np.array({name})" if subject.inputs.count else "borrow=False"
    arrays = [
        f"np.full({tuple(spec.shape)}, b'...', object)"
        if spec.dtype == tf.string
        else f"np.ones({tuple(spec.shape)}, {spec.dtype.name!r})"
        for spec in trial.base.sample.specs
    ]
    return f"{subject.name}({', '.join(arrays)})    # raises the same"


# The last is beyond 16 bits. The cost of a call decides whether one with more rows is made: at most
# it grows with the square of their number.
_ROWS = (1_025, 8_193, 65_537)
_GROWTH = 64

# A call that may take more seconds or bytes is not made.
_MOST_SECONDS, _MOST_BYTES = 5.0, 1 << 29

_ROUNDING = 1e-5  # NumPy adds up arrays of another layout in another order
_FIXED = "no size of the arguments may vary"


def empty(trial: Trial) -> Iterator[Outcome]:
    """Check that results are as declared for arguments without elements."""
    skip_if(not trial.varies, _FIXED)
    cause = "a batch may be empty, and what is made of no elements has another shape"
    line = f"if not {lines.name(trial.subject)}.size: ..."
    yield from _tried(trial, trial.subject.arguments.leading(0), cause, line)


def zero_d(trial: Trial) -> Iterator[Outcome]:
    """Check that results are as declared for scalars, if an argument may have any rank."""
    given = trial.subject.arguments
    if given.any_rank:
        cause = "functions of NumPy's make one axis of a scalar"
        line = f"if not np.ndim({lines.name(trial.subject)}): ..."
        yield from _tried(trial, given.of_rank_0(), cause, line)
    else:
        skip_if(
            all(tensor.shape.rank for tensor in given.base.tensors),
            "no argument is of rank 0, or of any rank: TensorSpec(None, ...)",
        )


def huge(trial: Trial) -> Iterator[Outcome]:
    """Check that results are as declared for many rows."""
    subject = trial.subject
    skip_if(not trial.varies, _FIXED)
    trial.skip_if_spared("2 calls")
    # An exception is a finding only if other sizes work. Else many rows need not be its cause.
    raises = subject.arguments.vary_alone and len(trial.all_sizes) > len(trial.other_sizes)
    cause = "it cuts off, or divides, what is large"
    line = f"def {subject.name}(...): ...    # for many rows, too"
    costs_much = ""  # a call with fewer rows
    for rows in _ROWS:
        if costs_much:
            yield trial.partly(f"{rows:,} rows: {costs_much}")
            return
        try:
            sample = subject.arguments.leading(rows)
        except ValueError as error:
            skip_if(rows == _ROWS[0], str(error))
            yield trial.partly(str(error))
            return
        outcomes, seconds, size = _measured(_tried(trial, sample, cause, line, raises))
        if outcomes:
            yield from outcomes
            return
        if seconds * _GROWTH > _MOST_SECONDS or size * _GROWTH > _MOST_BYTES or subject.eager:
            cost = f"{seconds:.2g} seconds and {size / 2**20:.2g} MiB"
            costs_much = f"a call with {rows:,} takes {cost}"


def _measured(outcomes: Iterator[Outcome]) -> tuple[list[Outcome], float, int]:
    """Return the outcomes, and the seconds and bytes that it takes to find them."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    tracemalloc.reset_peak()
    size, began = tracemalloc.get_traced_memory()[0], time.monotonic()
    try:
        found = list(outcomes)
        return found, time.monotonic() - began, tracemalloc.get_traced_memory()[1] - size
    finally:
        if not traced:
            tracemalloc.stop()


def layout(trial: Trial) -> Iterator[Outcome]:
    """Check that arrays whose memory layout is not row-major give the same results."""
    subject, sample = trial.subject, trial.base.sample
    arrays = [tensor.numpy() for tensor in sample.tensors]
    skip_if(subject.eager or subject.options.on_device, "it takes no arrays of NumPy's")
    is_large = any(isinstance(array, np.ndarray) and array.size > 1 for array in arrays)
    skip_if(not is_large, "no argument has more than one element")
    trial.skip_if_spared("2 calls")
    skip_if(not trial.repeats, DIFFERS)
    for name, change in (("every second of a larger array", _strided), ("by columns", _by_columns)):
        called = subject.call_on([change(array) for array in arrays], subject.out_specs(sample))
        where = f"for arrays that lie in memory {name}"
        skip_if(called.error, f"{where} it raises {called.raised}")
        now = subject.arrays(called)
        for found in differences(
            now, trial.first_results, ", and for the same row by row ", _ROUNDING
        ):
            cause = "it reads their memory by address, as one piece. Programs pass such arrays "
            cause += "as it expects; callers in Python need not"
            first = lines.name(subject)
            line = f"{first} = np.ascontiguousarray({first})"
            yield trial.finding(f"{where}, {found}", cause, line)
            return


def _tried(
    trial: Trial, sample: Sample, cause: str, line: str, raises: bool = False
) -> Iterator[Outcome]:
    """Make one more call and yield its outcome."""
    # `cause` and `line` are for results of other shapes. An exception is a finding if `raises`,
    # because only the size can cause it.
    called = trial.subject.call(sample)
    if called.error is not None:
        what = f"for {sample} it raises {called.raised}"
        skip_if(not raises, what)
        cause = "recursion over rows, small integers for indices, or memory"
        yield trial.finding(what, cause, line)
        return
    problem = _problem_of(trial.subject, called)
    if problem is not None and problem.kind == "dtypes":
        yield trial.finding(problem.what, problem.cause, problem.line)
    elif problem is not None:
        what = f"for {sample} {problem.what}" if problem.kind == "count" else problem.what
        yield trial.finding(what, cause, line)


def _strided(value: object) -> object:
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    large = np.empty([2 * size for size in value.shape], value.dtype)
    large[...] = large.flat[0] if large.size and value.dtype == object else 0
    view = large[tuple(slice(None, None, 2) for _ in value.shape)]
    view[...] = value
    return view


def _by_columns(value: object) -> object:
    return np.asfortranarray(value) if isinstance(value, np.ndarray) else value
