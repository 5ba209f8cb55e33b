"""The function `hostcall.check`, which runs all checks in order."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from hostcall._tf import eager_execution
from hostcall._tools.check import processes, programs, results, side_effects
from hostcall._tools.check.report import CheckError, CheckReport, Finding, NotChecked, Suggestion
from hostcall._tools.check.subject import described, subject_of
from hostcall._tools.check.trial import Check, Outcome, SkipError, Trial

CHECKS: dict[str, Check] = {
    "call": results.returns,
    "count": results.count_or_dtypes,
    "dtypes": results.count_or_dtypes,
    "shapes": results.shapes,
    "arguments": side_effects.arguments,
    "borrowed": side_effects.borrowed,
    "out": side_effects.out,
    "purity": side_effects.purity,
    "aliasing": side_effects.aliasing,
    "empty": results.empty,
    "zero_d": results.zero_d,
    "huge": results.huge,
    "layout": results.layout,
    "vectorization": programs.vectorization,
    "threads": side_effects.threads,
    "gradient": programs.gradient,
    "pickling": processes.pickling,
    "name": processes.name,
    "compiled": programs.compiled,
    "partitioned": programs.partitioned,
    "jax": programs.in_jax,
}

# A fault that one of these finds would show again in every later check.
_STOPPING = (
    *("call", "count", "dtypes", "shapes", "arguments", "borrowed", "out", "purity", "aliasing"),
    *("pickling", "compiled"),
)

# These compare results of calls that are made at different times.
_COMPARING = ("layout", "vectorization", "threads", "gradient", "compiled", "partitioned", "jax")

_CHANGED = "the function returns something else by now, as its state has changed"


def check(
    function: Callable[..., Any],
    /,
    *args: Any,
    kwargs: Mapping[str, Any] = types.MappingProxyType({}),
    result: object = None,
    kind: str | None = None,
    stateful: bool | None = None,
    skip: Collection[str] = (),
    repeat_effects: bool = False,
    raise_errors: bool = True,
) -> CheckReport:
    """Test a callback against its declaration.

    Args:
      function: a `hostcall.callback`, or a function that is passed to a script op.
      *args: its arguments: arrays or tensors, structures of them, or `tf.TensorSpec`s, for which
        values are made up. A size that is None in a spec is tried with several numbers. The leading
        sizes of arrays vary if a shape function is declared.
      kwargs: the keyword arguments of a `hostcall.callback`.
      result: for a plain function: the declaration of its results, as in `hostcall.callback`, or
        dtypes (as in `Tout`) if `hostcall.declare` gives only the shapes.
      kind: for a plain function: "numpy", the default, if it is for `tf.numpy_function`, "eager" if
        it is for `tf.py_function`.
      stateful: for a plain function: whether its op is stateful. The default is True unless the
        function is declared with `pure` or `memo`.
      skip: the names of checks to leave out.
      repeat_effects: whether a stateful function is called as often as a pure one.
      raise_errors: False returns the findings without raising them.

    Returns:
      A `CheckReport` with the findings, the parts that were not checked with the reasons, and the
      number of calls. A stateful function is called about 10 times, plus 8 times for each argument
      whose gradient is checked; a pure one about 60 times.

    Raises:
      CheckError: an AssertionError whose text is the report, when something was found.
      TypeError: when `function` is not callable, its results are not declared, or an option does
        not fit it.
      ValueError: when `skip` names an unknown check.

    Examples:
      >>> @hostcall.callback(result=lambda x: x, stateful=False)
      ... def cumulate(x):
      ...     return np.cumsum(x, axis=0)
      >>> hostcall.check(cumulate, np.ones([3, 2], np.float32)).ok
      True
      >>> report = hostcall.check(np.median, np.ones(3, np.float32), result=lambda x: x,
      ...                         raise_errors=False)
      >>> print(report.findings[0].what)
      result 0 has shape () for arguments of shape (3,), and declared is (3,)
    """
    __tracebackhide__ = True  # pytest shows the user's line
    unknown = [name for name in skip if name not in CHECKS]
    if isinstance(skip, str) or unknown:
        listed = ", ".join(map(repr, CHECKS))
        raise ValueError(f"hostcall.check: skip={skip!r} names none of the checks: {listed}.")
    with eager_execution.eager_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = subject_of(function, args, kwargs, result, kind, stateful)
        report = _report(Trial(subject, repeat_effects), skip)
    if raise_errors and not report.ok:
        raise CheckError(report)
    return report


def _report(trial: Trial, skip: Collection[str]) -> CheckReport:
    """Make all checks in their order."""
    outcomes: list[Outcome] = []
    passed = []
    found_by = ""
    for name, check in CHECKS.items():
        if name in skip:
            made: list[Outcome] = [NotChecked(name, "it is left out by skip=")]
        elif found_by:
            made = [NotChecked(name, f"first comes what was found by {found_by}")]
        else:
            made = _made(name, check, trial)
        outcomes += made
        if any(isinstance(one, Finding) for one in made):
            found_by = name if name in _STOPPING else ""
        elif all(not isinstance(one, NotChecked) or one.partly for one in made):
            passed.append(name)
    return CheckReport(
        trial.subject.description,
        tuple(one for one in outcomes if isinstance(one, Finding)),
        tuple(passed),
        tuple(one for one in outcomes if isinstance(one, NotChecked)),
        trial.subject.calls,
        tuple(one for one in outcomes if isinstance(one, Suggestion)),
    )


def _made(name: str, check: Check, trial: Trial) -> list[Outcome]:
    outcomes: list[Outcome] = []
    trial.check = name
    try:
        outcomes.extend(check(trial))
    except SkipError as skipped:
        outcomes.append(NotChecked(name, str(skipped)))
    except Exception as error:  # from the check, or from user code in an unexpected place
        outcomes.append(NotChecked(name, f"the check itself has failed: {described(error)}"))
    has_found = any(isinstance(one, Finding) for one in outcomes)
    if name in _COMPARING and has_found and not trial.still_repeats():
        return [NotChecked(name, _CHANGED)]
    return outcomes
