"""Checks of what calls return: that they do, how many results, dtypes, shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from hostcall._callbacks.specs import BoundedSpec, static_shape
from hostcall._check import conformity, lines
from hostcall._check.conformity import COUNT, DTYPE, RULE, SHAPE, Problem
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.subject import UnsizedError
from hostcall._check.trial import Outcome, Trial, Tried


def call(trial: Trial) -> Iterator[Outcome]:
    """The function returns something for the user's arguments."""
    called = trial.base.called
    if isinstance(called.error, UnsizedError):
        dtypes = trial.subject.outputs.dtypes
        specs = [lines.spec(tf.TensorSpec(None, one), "[...]") for one in dtypes]
        line = lines.result(trial.subject, specs, uses_arguments=True)
        cause = "a size is None or only bounded, and the function is to write into arrays"
        yield Finding("call", str(called.error), cause, line)
    elif called.error is not None:
        what = f"it raises for {trial.base.sample}: {called.raised}"
        if trial.subject.arguments.made_up:
            cause = "it does not take these arguments, or not the values that were made up for them"
            yield Finding("call", what, cause, _with_arrays(trial))
        else:
            cause = "it does not take what programs pass: arrays, and NumPy scalars for rank 0"
            if trial.subject.declaration.borrow:
                cause += "; borrowed arrays are read-only"
            yield Finding("call", what, cause, _call(trial))


def count(trial: Trial) -> Iterator[Outcome]:
    """It returns as many results as are declared, in their structure."""
    for tried in trial.all_sizes:
        problem = conformity.problem(trial.subject, tried)
        if problem is not None and problem.kind == COUNT:
            cause = "a result more or less than is declared, or a list where one array is meant"
            line = _return_of_all(trial)
            if trial.subject.outputs.alone and isinstance(tried.called.returned, list):
                dtype = _numpy_name(trial.subject.outputs.dtypes[0])
                line = f"return np.asarray(y, np.{dtype})    # y is the list"
            yield Finding("count", problem.what, cause, line)
            return


def dtypes(trial: Trial) -> Iterator[Outcome]:
    """Results have their declared dtypes."""
    for tried in trial.all_sizes:
        problem = conformity.problem(trial.subject, tried)
        if problem is not None and problem.kind == DTYPE:
            yield dtype_finding(trial, "dtypes", problem)
            return


def dtype_finding(trial: Trial, check: str, problem: Problem) -> Finding:
    """The finding for a result of another dtype than is declared."""
    dtype = trial.subject.outputs.dtypes[problem.index]
    if problem.actual is None:
        return Finding(check, problem.what, "a path that returns nothing", _return_of_all(trial))
    cause = "NumPy computes in float64, and int64, unless it is told otherwise"
    count = len(trial.subject.outputs.dtypes)
    name = "y" if count == 1 else f"y{problem.index}"
    line = f"return np.asarray({name}, np.{_numpy_name(dtype)})"
    if count > 1:
        line += f"    # for result {problem.index}, {name}"
    return Finding(check, problem.what, cause, line)


def shapes(trial: Trial) -> Iterator[Outcome]:
    """Results have the shapes that are declared, for several sizes."""
    found = False
    for tried in trial.all_sizes:
        problem = conformity.problem(trial.subject, tried)
        if problem is not None and problem.kind in (SHAPE, RULE):
            yield shape_finding(trial, "shapes", problem)
            found = True
            break
    if not found:
        yield from _of_unknown_sizes(trial)
    yield from _not_tried(trial)


def shape_finding(trial: Trial, check: str, problem: Problem) -> Finding:
    """The finding for a shape that is not as declared."""
    subject = trial.subject
    if problem.kind == RULE:
        cause = "the shape function computes with sizes that these arguments do not have"
        return Finding(check, problem.what, cause, _written(trial, problem.index))
    cause = "the shape function does not say how sizes follow from those of the arguments"
    if not subject.has_shape_function:
        cause = "the declared shape is a constant, and the shape of the result is not"
    return Finding(check, problem.what, cause, _written(trial, problem.index))


def _of_unknown_sizes(trial: Trial) -> Iterator[Outcome]:
    """Where tracing does not know sizes, the shape function says nothing that is wrong."""
    subject = trial.subject
    if not subject.has_shape_function or not trial.base.sample.tensors:
        return
    base = trial.base
    unknown = [tf.TensorSpec([None] * len(spec.shape), spec.dtype) for spec in base.sample.specs]
    try:
        said = subject.specs(unknown)
    except Exception:  # hostcall asks again when sizes are known
        return
    for tried in trial.all_sizes:
        arrays = subject.arrays(tried.called)
        for index, (spec, array) in enumerate(zip(said, arrays, strict=True)):
            if not static_shape(spec).is_compatible_with(array.shape):
                what = (
                    f"for arguments of unknown size (None) the shape function says "
                    f"{conformity.declared(spec)} of result {index}, which has shape "
                    f"{array.shape} for {tried.sample}"
                )
                cause = "a number takes the place of a size that is None while TensorFlow traces"
                yield Finding("shapes", what, cause, _written(trial, index))
                return


def _not_tried(trial: Trial) -> Iterator[Outcome]:
    subject = trial.subject
    if not trial.other_sizes and subject.arguments.can_vary and subject.outputs.dtypes:
        yield NotChecked(
            "shapes",
            "other sizes than these, since the declared shape is a constant. "
            "tf.TensorSpec([None], ...) in the place of an argument says that its size may vary.",
            partly=True,
        )
    for tried in trial.other_sizes:
        if tried.called.error is None:
            continue
        what = f"it raises for {tried.sample}: {tried.called.raised}"
        if tried.sample.promised:
            cause = "it does not take all sizes that the tf.TensorSpec admits"
            yield Finding("shapes", what, cause, _with_arrays(trial))
            return
        else:
            yield NotChecked("shapes", what, partly=True)


def _written(trial: Trial, index: int) -> str:
    """The declaration as it should be, as far as the calls show it."""
    subject = trial.subject
    try:
        known = subject.specs(trial.base.sample.specs)
    except Exception:
        known = [tf.TensorSpec(None, dtype) for dtype in subject.outputs.dtypes]
    specs, uses_arguments = [], False
    tried = [one for one in trial.all_sizes if not _is_odd(trial, one)]
    for number, spec in enumerate(known):
        if number != index and isinstance(spec, BoundedSpec):
            specs.append(lines.spec(spec))
            continue
        seen = [_seen(trial, one, number) for one in tried]
        expression = lines.shape_expression(subject, seen)
        if expression is None:
            return "route='partition'    # in the place of result=: no rule for the sizes is seen"
        uses_arguments = uses_arguments or ".shape" in expression
        specs.append(lines.spec(spec, expression))
    return lines.result(subject, specs, uses_arguments)


def _seen(trial: Trial, tried: Tried, index: int) -> lines.Shapes:
    given = [tuple(tensor.shape.as_list()) for tensor in tried.sample.tensors]
    return given, np.shape(trial.subject.arrays(tried.called)[index])


def _is_odd(trial: Trial, tried: Tried) -> bool:
    problem = conformity.problem(trial.subject, tried)
    return problem is not None and problem.kind in (COUNT, DTYPE)


def _return_of_all(trial: Trial) -> str:
    structure = trial.subject.outputs.structure
    if isinstance(structure, dict):
        return "return {" + ", ".join(f"{key!r}: ..." for key in structure) + "}"
    count = len(trial.subject.outputs.dtypes)
    if not count:
        return "return"
    return "return y" if count == 1 else f"return {', '.join(f'y{i}' for i in range(count))}"


def _with_arrays(trial: Trial) -> str:
    values = ["np.array(...)" for _ in range(trial.subject.inputs.count)]
    return f"hostcall.check({', '.join([trial.subject.name, *values])})    # with values of yours"


def _call(trial: Trial) -> str:
    if trial.subject.declaration.borrow:
        names = lines.names(trial.subject)
        return f"{names[0]} = np.array({names[0]})" if names else "borrow=False"
    arrays = [
        f"np.full({tuple(spec.shape)}, b'...', object)"
        if spec.dtype == tf.string
        else f"np.ones({tuple(spec.shape)}, {spec.dtype.name!r})"
        for spec in trial.base.sample.specs
    ]
    return f"{trial.subject.name}({', '.join(arrays)})    # raises the same"


def _numpy_name(dtype: tf.DType) -> str:
    if dtype == tf.string:
        return "bytes_"
    return "bool_" if dtype == tf.bool else dtype.name
