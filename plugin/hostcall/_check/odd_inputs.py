"""Checks inputs that are easily forgotten: empty, of rank 0, huge, not contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hostcall._check import conformity, lines, results
from hostcall._check.arguments import Sample
from hostcall._check.conformity import COUNT, DTYPE
from hostcall._check.cost import Cost
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.trial import Outcome, Trial, Tried, same

# Beyond what 16 bits count. What calls with fewer cost tells whether there may be as many.
_ROWS = (1_025, 8_193, 65_537)

# NumPy's sums go another way through memory.
_ROUNDING = 1e-5

_FIXED = "no size of the arguments may vary"


def empty(trial: Trial) -> Iterator[Outcome]:
    """For arguments without elements the results are as declared."""
    if _varies(trial):
        yield from _tried(trial, "empty", trial.subject.arguments.leading(0))
    else:
        yield NotChecked("empty", _FIXED)


def zero_d(trial: Trial) -> Iterator[Outcome]:
    """For scalars, too, where an argument may have any rank."""
    given = trial.subject.arguments
    if given.any_rank:
        yield from _tried(trial, "zero_d", given.of_rank_0())
    elif all(tensor.shape.rank for tensor in given.base.tensors):
        yield NotChecked(
            "zero_d", "no argument is of rank 0, or of any rank: TensorSpec(None, ...)"
        )


def huge(trial: Trial) -> Iterator[Outcome]:
    """For many rows, too."""
    subject = trial.subject
    if not _varies(trial):
        yield NotChecked("huge", _FIXED)
        return
    if trial.is_spared:
        yield trial.spared("huge", "2 calls")
        return
    # Where other sizes are refused, too, it is not for their number.
    raises = subject.arguments.vary_alone and len(trial.all_sizes) > len(trial.other_sizes)
    costs: list[Cost] = []
    for rows in _ROWS:
        if costs and (costs[-1].exceeds(costs[:-1]) or subject.eager):
            what = f"{rows:,} rows: a call with {costs[-1].rows:,} takes {costs[-1]}"
            yield NotChecked("huge", what, partly=True)
            return
        try:
            sample = subject.arguments.leading(rows)
        except ValueError as error:
            yield NotChecked("huge", str(error), partly=bool(costs))
            return
        with Cost(rows) as cost:
            outcomes = list(_tried(trial, "huge", sample, raises))
        if outcomes:
            yield from outcomes
            return
        costs.append(cost)


def layout(trial: Trial) -> Iterator[Outcome]:
    """Arrays that do not lie in memory row by row mean the same."""
    subject = trial.subject
    arrays = [tensor.numpy() for tensor in trial.base.sample.tensors]
    if subject.eager or subject.declaration.on_device:
        yield NotChecked("layout", "it takes no arrays of NumPy's")
        return
    if not any(isinstance(array, np.ndarray) and array.size > 1 for array in arrays):
        yield NotChecked("layout", "no argument has more than one element")
        return
    if trial.is_spared:
        yield trial.spared("layout", "2 calls")
        return
    if not trial.repeats:
        yield NotChecked("layout", "two calls do not return the same")
        return
    for name, change in (("every second of a larger array", _strided), ("by columns", _by_columns)):
        specs = subject.specs(trial.base.sample.specs) if subject.declaration.out else []
        called = subject.call_on([change(array) for array in arrays], specs)
        if called.error is not None:
            why = f"for arrays that lie in memory {name} it raises {called.raised}"
            yield NotChecked("layout", why)
            return
        now = subject.arrays(called)
        for index, (one, other) in enumerate(zip(now, trial.first_results, strict=True)):
            if not same([one], [other], _ROUNDING):
                what = (
                    f"for arrays that lie in memory {name}, result {index} is {lines.shown(one)}, "
                    f"and for the same row by row {lines.shown(other)}"
                )
                cause = "it reads their memory by address, as one piece. Programs pass such arrays "
                cause += "as it expects; callers in Python need not"
                names = lines.names(subject)
                first = names[0] if names else "x"
                yield Finding("layout", what, cause, f"{first} = np.ascontiguousarray({first})")
                return


def _varies(trial: Trial) -> bool:
    given = trial.subject.arguments
    return given.can_vary and (given.has_free_sizes or trial.subject.has_shape_function)


def _tried(trial: Trial, check: str, sample: Sample, raises: bool = False) -> Iterator[Outcome]:
    """What one more call shows.

    Args:
      trial: the run.
      check: the name of the check.
      sample: the arguments.
      raises: whether an exception is a finding, where it can only come from the size.
    """
    subject = trial.subject
    try:
        tried = Tried(sample, subject.call(sample))
    except Exception as error:  # of the shape function, which `out` needs
        yield NotChecked(check, f"the shape function raises {type(error).__name__}: {error}")
        return
    if tried.called.error is None:
        yield from _compared(trial, check, tried)
        return
    what = f"for {sample} it raises {tried.called.raised}"
    if raises:
        cause = "recursion over rows, small integers for indices, or memory"
        yield Finding(check, what, cause, f"def {subject.name}(...): ...    # for many rows, too")
    else:
        yield NotChecked(check, what)


def _compared(trial: Trial, check: str, tried: Tried) -> Iterator[Finding]:
    problem = conformity.problem(trial.subject, tried)
    if problem is None:
        return
    if problem.kind == DTYPE:
        yield results.dtype_finding(trial, check, problem)
        return
    names = lines.names(trial.subject)
    name = names[0] if names else "x"
    cause = {
        "empty": "a batch may be empty, and what is made of no elements has another shape",
        "zero_d": "functions of NumPy's make one axis of a scalar",
        "huge": "it cuts off, or divides, what is large",
    }[check]
    what = problem.what if problem.kind != COUNT else f"for {tried.sample} {problem.what}"
    line = {
        "empty": f"if not {name}.size: return {_empty_results(trial)}",
        "zero_d": f"if not np.ndim({name}): ...",
        "huge": f"def {trial.subject.name}(...): ...    # for many rows, too",
    }[check]
    yield Finding(check, what, cause, line)


def _empty_results(trial: Trial) -> str:
    subject = trial.subject
    sample = subject.arguments.leading(0)
    try:
        specs = [
            (spec.shape.as_list(), spec.dtype.as_numpy_dtype)
            for spec in subject.specs(sample.specs)
        ]
    except Exception:
        return "..."
    return ", ".join(f"np.zeros({shape}, np.{np.dtype(dtype).name})" for shape, dtype in specs)


def _strided(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    large = np.empty([2 * size for size in value.shape], value.dtype)
    large[...] = large.flat[0] if large.size and value.dtype == object else 0
    view = large[tuple(slice(None, None, 2) for _ in value.shape)]
    view[...] = value
    return view


def _by_columns(value: Any) -> Any:
    return np.asfortranarray(value) if isinstance(value, np.ndarray) else value
