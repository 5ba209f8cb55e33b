"""Checks of results: number, dtypes, shapes, also for empty, scalar, huge and strided inputs."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.structures import BoundedSpec, Spec, admits, static_shape
from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.report import Finding
from hostcall._check.subject import Subject, UnsizedError, described
from hostcall._check.trial import Outcome, SkipError, Trial, Tried, differences, skip_if
from hostcall_runtime._errors import counted

_COUNT, _DTYPE, _SHAPE, _RULE = "count", "dtype", "shape", "rule"


@dataclasses.dataclass(frozen=True)
class _Problem:
    """A difference between results and their declaration."""

    kind: str  # _COUNT, _DTYPE, _SHAPE, or _RULE for a shape function that fails
    what: str  # a description in words
    index: int = 0  # the index of the result
    returns_nothing: bool = False  # whether the result is None


def _problem_of(subject: Subject, tried: Tried) -> _Problem | None:
    """Return the first difference between a call's results and the declaration, or None."""
    called, dtypes = tried.called, subject.outputs.dtypes
    try:
        results = subject.results(called)
    except (ValueError, TypeError, IndexError) as error:
        what = f"it returned {_kind(called.returned)}, and declared is {_structure(subject)}"
        return _Problem(_COUNT, f"{what}: {described(error)}")
    if len(results) != len(dtypes):
        what = f"it returned {counted(len(results), 'value')}, and declared: {len(dtypes)}"
        return _Problem(_COUNT, what)
    arrays = []
    for index, (value, dtype) in enumerate(zip(results, dtypes, strict=True)):
        array, actual = _converted(subject, value, dtype)
        if array is None:
            what = f"result {index} is {actual}, and declared is {dtype.name}"
            return _Problem(_DTYPE, what, index, value is None)
        arrays.append(array)
    try:
        specs = subject.specs(tried.sample.specs)
    except Exception as error:
        what = f"the shape function fails for {tried.sample}: {described(error)}"
        return _Problem(_RULE, what)
    for index, (array, spec) in enumerate(zip(arrays, specs, strict=True)):
        if not admits(spec, array.shape):
            what = f"result {index} has shape {array.shape} for {tried.sample}, and declared is "
            return _Problem(_SHAPE, what + _declared(spec), index)
    return None


def _declared(spec: Spec) -> str:
    """Return the shape that a spec declares, as text for a message."""
    if isinstance(spec, BoundedSpec):
        return str(spec)
    return str(spec.shape) if spec.shape.rank is None else str(tuple(spec.shape.as_list()))


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


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _structure(subject: Subject) -> str:
    structure = subject.outputs.structure
    if isinstance(structure, dict):
        return f"a dict of {', '.join(map(repr, structure))}"
    return counted(len(subject.outputs.dtypes), "result")


def call(trial: Trial) -> Iterator[Outcome]:
    """Check that the function returns for the user's arguments."""
    subject, called = trial.subject, trial.base.called
    if isinstance(called.error, UnsizedError):
        specs = [lines.spec(tf.TensorSpec(None, one), "[...]") for one in subject.outputs.dtypes]
        line = lines.result(subject, specs, uses_arguments=True)
        cause = "a size is None or only bounded, and the function is to write into arrays"
        yield trial.finding(str(called.error), cause, line)
    elif called.error is not None:
        what = f"it raises for {trial.base.sample}: {called.raised}"
        if subject.arguments.made_up:
            cause = "it does not take these arguments, or not the values that were made up for them"
            yield trial.finding(what, cause, _with_arrays(trial))
        else:
            cause = "it does not take what programs pass: arrays, and NumPy scalars for rank 0"
            if subject.options.borrow:
                cause += "; borrowed arrays are read-only"
            yield trial.finding(what, cause, _call(trial))


def count(trial: Trial) -> Iterator[Outcome]:
    """Check that results have the declared number and structure."""
    outputs = trial.subject.outputs
    for tried, problem in _problems(trial, _COUNT):
        cause = "a result more or less than is declared, or a list where one array is meant"
        line = _return_of_all(trial)
        if outputs.alone and isinstance(tried.called.returned, list):
            line = f"return np.asarray(y, np.{_numpy_name(outputs.dtypes[0])})    # y is the list"
        yield trial.finding(problem.what, cause, line)
        return


def dtypes(trial: Trial) -> Iterator[Outcome]:
    """Check that results have their declared dtypes."""
    for _, problem in _problems(trial, _DTYPE):
        yield _dtype_finding(trial, problem)
        return


def _problems(trial: Trial, *kinds: str) -> Iterator[tuple[Tried, _Problem]]:
    for tried in trial.all_sizes:
        problem = _problem_of(trial.subject, tried)
        if problem is not None and problem.kind in kinds:
            yield tried, problem


def _dtype_finding(trial: Trial, problem: _Problem) -> Finding:
    dtypes = trial.subject.outputs.dtypes
    if problem.returns_nothing:
        return trial.finding(problem.what, "a path that returns nothing", _return_of_all(trial))
    cause = "NumPy computes in float64, and int64, unless it is told otherwise"
    name = "y" if len(dtypes) == 1 else f"y{problem.index}"
    line = f"return np.asarray({name}, np.{_numpy_name(dtypes[problem.index])})"
    if len(dtypes) > 1:
        line += f"    # for result {problem.index}, {name}"
    return trial.finding(problem.what, cause, line)


def shapes(trial: Trial) -> Iterator[Outcome]:
    """Check that results have their declared shapes, for several sizes."""
    for _, problem in _problems(trial, _SHAPE, _RULE):
        if problem.kind == _RULE:
            cause = "the shape function computes with sizes that these arguments do not have"
        elif trial.subject.has_shape_function:
            cause = "the shape function does not say how sizes follow from those of the arguments"
        else:
            cause = "the declared shape is a constant, and the shape of the result is not"
        yield trial.finding(problem.what, cause, _written(trial, problem.index))
        break
    else:
        yield from _of_unknown_sizes(trial)
    yield from _not_tried(trial)


def _of_unknown_sizes(trial: Trial) -> Iterator[Outcome]:
    """Check that the shape function gives no wrong sizes while tracing does not know them."""
    subject, specs = trial.subject, trial.base.sample.specs
    if not subject.has_shape_function or not specs:
        return
    try:
        said = subject.specs([tf.TensorSpec([None] * len(s.shape), s.dtype) for s in specs])
    except Exception:  # hostcall calls it again when sizes are known
        return
    for tried in trial.all_sizes:
        arrays = subject.arrays(tried.called)
        for index, (spec, array) in enumerate(zip(said, arrays, strict=True)):
            if not static_shape(spec).is_compatible_with(array.shape):
                what = (
                    f"for arguments of unknown size (None) the shape function says "
                    f"{_declared(spec)} of result {index}, which has shape "
                    f"{array.shape} for {tried.sample}"
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
    for tried in trial.other_sizes:
        if tried.called.error is None:
            continue
        what = f"it raises for {tried.sample}: {tried.called.raised}"
        if tried.sample.promised:
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
    odd = [tried for tried, _ in _problems(trial, _COUNT, _DTYPE)]
    seen = [
        (
            [tuple(tensor.shape.as_list()) for tensor in tried.sample.tensors],
            [array.shape for array in subject.arrays(tried.called)],
        )
        for tried in trial.all_sizes
        if tried not in odd
    ]
    specs, uses_arguments = [], False
    for number, spec in enumerate(known):
        if number != index and isinstance(spec, BoundedSpec):
            specs.append(lines.spec(spec))
            continue
        expression = lines.shape_expression(
            subject, [(given, all_[number]) for given, all_ in seen]
        )
        if expression is None:
            return "route='partition'    # in the place of result=: no rule for the sizes is seen"
        uses_arguments = uses_arguments or ".shape" in expression
        specs.append(lines.spec(spec, expression))
    return lines.result(subject, specs, uses_arguments)


def _return_of_all(trial: Trial) -> str:
    structure = trial.subject.outputs.structure
    if isinstance(structure, dict):
        return "return {" + ", ".join(f"{key!r}: ..." for key in structure) + "}"
    count = len(trial.subject.outputs.dtypes)
    values = ["y"] if count == 1 else [f"y{i}" for i in range(count)]
    return f"return {', '.join(values)}".rstrip()


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


def _numpy_name(dtype: tf.DType) -> str:
    return str({tf.string: "bytes_", tf.bool: "bool_"}.get(dtype, dtype.name))


# The last is beyond 16 bits. The cost of calls with fewer rows decides whether more are tried.
_ROWS = (1_025, 8_193, 65_537)

# A call that may take more seconds or bytes is not made. Each number of rows is eight times the one
# before: the cost grows at least as much, and at most with the square of that.
_MOST_SECONDS, _MOST_BYTES = 5.0, 1 << 29
_LEAST_GROWTH, _MOST_GROWTH = 8.0, 64.0

_ROUNDING = 1e-5  # NumPy adds up arrays of another layout in another order
_FIXED = "no size of the arguments may vary"


def empty(trial: Trial) -> Iterator[Outcome]:
    """Check that results are as declared for arguments without elements."""
    skip_if(not trial.varies, _FIXED)
    name = lines.name(trial.subject)
    yield from _tried(
        trial,
        trial.subject.arguments.leading(0),
        "a batch may be empty, and what is made of no elements has another shape",
        f"if not {name}.size: return {_empty_results(trial)}",
    )


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
    costs: list[tuple[float, float]] = []
    for number, rows in enumerate(_ROWS):
        if costs and (_may_cost_too_much(costs) or subject.eager):
            seconds, size = costs[-1]
            before = f"a call with {_ROWS[number - 1]:,} takes {seconds:.2g} seconds"
            yield trial.partly(f"{rows:,} rows: {before} and {size / 2**20:.2g} MiB")
            return
        try:
            sample = subject.arguments.leading(rows)
        except ValueError as error:
            skip_if(not costs, str(error))
            yield trial.partly(str(error))
            return
        outcomes, cost = _measured(_tried(trial, sample, cause, line, raises))
        if outcomes:
            yield from outcomes
            return
        costs.append(cost)


def _measured(outcomes: Iterator[Outcome]) -> tuple[list[Outcome], tuple[float, float]]:
    """Return the outcomes, and the seconds and bytes that it takes to find them."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    tracemalloc.reset_peak()
    size, began = tracemalloc.get_traced_memory()[0], time.monotonic()
    try:
        found = list(outcomes)
        seconds = time.monotonic() - began
        return found, (seconds, tracemalloc.get_traced_memory()[1] - size)
    finally:
        if not traced:
            tracemalloc.stop()


def _may_cost_too_much(costs: Sequence[tuple[float, float]]) -> bool:
    """Return whether a call with eight times the rows of the last might take too much."""
    growth = [_MOST_GROWTH, _MOST_GROWTH]
    if len(costs) > 1:
        pairs = zip(costs[-1], costs[-2], strict=True)
        growth = [now / max(before, 1e-9) for now, before in pairs]
    expected = [
        cost * min(_MOST_GROWTH, max(_LEAST_GROWTH, by))
        for cost, by in zip(costs[-1], growth, strict=True)
    ]
    return expected[0] > _MOST_SECONDS or expected[1] > _MOST_BYTES


def layout(trial: Trial) -> Iterator[Outcome]:
    """Check that arrays whose memory layout is not row-major give the same results."""
    subject, sample = trial.subject, trial.base.sample
    arrays = [tensor.numpy() for tensor in sample.tensors]
    skip_if(subject.eager or subject.options.on_device, "it takes no arrays of NumPy's")
    is_large = any(isinstance(array, np.ndarray) and array.size > 1 for array in arrays)
    skip_if(not is_large, "no argument has more than one element")
    trial.skip_if_spared("2 calls")
    trial.skip_unless_repeating()
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
    try:
        tried = trial.call(sample)
    except Exception as error:  # from the shape function, which `out` needs
        raise SkipError(f"the shape function raises {type(error).__name__}: {error}") from error
    if tried.called.error is not None:
        what = f"for {sample} it raises {tried.called.raised}"
        skip_if(not raises, what)
        cause = "recursion over rows, small integers for indices, or memory"
        yield trial.finding(what, cause, line)
        return
    problem = _problem_of(trial.subject, tried)
    if problem is None:
        return
    if problem.kind == _DTYPE:
        yield _dtype_finding(trial, problem)
        return
    what = f"for {sample} {problem.what}" if problem.kind == _COUNT else problem.what
    yield trial.finding(what, cause, line)


def _empty_results(trial: Trial) -> str:
    subject = trial.subject
    try:
        specs = subject.specs(subject.arguments.leading(0).specs)
        return ", ".join(
            f"np.zeros({spec.shape.as_list()}, np.{np.dtype(spec.dtype.as_numpy_dtype).name})"
            for spec in specs
        )
    except Exception:
        return "..."


def _strided(value: object) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    large = np.empty([2 * size for size in value.shape], value.dtype)
    large[...] = large.flat[0] if large.size and value.dtype == object else 0
    view = large[tuple(slice(None, None, 2) for _ in value.shape)]
    view[...] = value
    return view


def _by_columns(value: object) -> Any:
    return np.asfortranarray(value) if isinstance(value, np.ndarray) else value
