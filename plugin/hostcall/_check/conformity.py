"""What a call has returned, against what is declared: how many results, dtypes and shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.specs import BoundedSpec, Spec, admits
from hostcall._check.subject import Subject
from hostcall._check.trial import Tried
from hostcall_runtime._words import counted

COUNT, DTYPE, SHAPE, RULE = "count", "dtype", "shape", "rule"


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is not as declared.

    Attributes:
      kind: COUNT, DTYPE, SHAPE, or RULE for a shape function that fails.
      what: in words.
      index: of the result.
      actual: the dtype or shape that it has, or how many results there are.
    """

    kind: str
    what: str
    index: int = 0
    actual: Any = None


def problem(subject: Subject, tried: Tried) -> Problem | None:
    """The first thing that is not as declared in what a call has returned, or None."""
    called, dtypes = tried.called, subject.outputs.dtypes
    try:
        results = subject.results(called)
    except (ValueError, TypeError, IndexError) as error:
        what = f"it returned {_kind(called.returned)}, and declared is {_structure(subject)}"
        return Problem(COUNT, f"{what}: {_first_line(error)}")
    if len(results) != len(dtypes):
        what = f"it returned {counted(len(results), 'value')}, and declared: {len(dtypes)}"
        return Problem(COUNT, what, actual=len(results))
    arrays = []
    for index, (value, dtype) in enumerate(zip(results, dtypes, strict=True)):
        found = _dtype_problem(subject, index, value, dtype)
        if isinstance(found, Problem):
            return found
        arrays.append(found)
    try:
        specs = subject.specs(tried.sample.specs)
    except Exception as error:
        what = f"the shape function fails for {tried.sample}: {_first_line(error)}"
        return Problem(RULE, what)
    return _shape_problem(arrays, specs, tried)


def declared(spec: Spec) -> str:
    """The shape that a spec declares, in a message."""
    if isinstance(spec, BoundedSpec):
        return str(spec)
    return str(spec.shape) if spec.shape.rank is None else str(tuple(spec.shape.as_list()))


def _dtype_problem(
    subject: Subject, index: int, value: Any, dtype: tf.DType
) -> Problem | np.ndarray:
    """The result as an array, where it has the declared dtype."""
    own = getattr(value, "dtype", None)
    wrong = None
    try:
        array = subject.as_array(value, dtype)
        if not _has_dtype(array, dtype):
            wrong = array.dtype.name
    except Exception as error:
        wrong = str(getattr(own, "name", own)) if own is not None else type(value).__name__
        if value is not None and own is None:
            wrong += f" ({_first_line(error)})"
    if wrong is None:
        return array
    what = f"result {index} is {wrong}, and declared is {dtype.name}"
    actual = own if own is not None else np.asarray(value).dtype if value is not None else None
    return Problem(DTYPE, what, index, actual)


def _has_dtype(array: np.ndarray, dtype: tf.DType) -> bool:
    if dtype == tf.string:
        return array.dtype.kind in "OSU"
    return bool(array.dtype == np.dtype(dtype.as_numpy_dtype))


def _shape_problem(
    arrays: Sequence[np.ndarray], specs: Sequence[Spec], tried: Tried
) -> Problem | None:
    for index, (array, spec) in enumerate(zip(arrays, specs, strict=True)):
        if not admits(spec, array.shape):
            what = (
                f"result {index} has shape {array.shape} for {tried.sample}, and declared is "
                f"{declared(spec)}"
            )
            return Problem(SHAPE, what, index, array.shape)
    return None


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _structure(subject: Subject) -> str:
    structure = subject.outputs.structure
    if isinstance(structure, dict):
        return f"a dict of {', '.join(map(repr, structure))}"
    return counted(len(subject.outputs.dtypes), "result")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300] if text else ''}"
