"""One run of `hostcall.check`: the calls that several checks share, each made once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from hostcall._tools.check import arguments, lines
from hostcall._tools.check.report import Finding, NotChecked, Suggestion
from hostcall._tools.check.subject import Called, Subject

Outcome: TypeAlias = Finding | NotChecked | Suggestion

# A check yields its findings, its suggestions, and the parts that it has not checked.
Check: TypeAlias = "Callable[[Trial], Iterator[Outcome]]"

DIFFERS = "two calls do not return the same"
_ULPS = 16  # the tolerance between equal calls, in units in the last place of the largest number


class SkipError(Exception):
    """Error: a check cannot be made, for the reason in the text."""


def skip_if(condition: object, why: str) -> None:
    """End the check with a SkipError if a condition holds."""
    if condition:
        raise SkipError(why)


class Trial:
    """The calls of one run."""

    def __init__(self, subject: Subject, repeats_effects: bool) -> None:
        self.subject = subject  # the subject of the check
        # Whether a function with side effects is called as often as a pure one.
        self.repeats_effects = repeats_effects
        self.check = ""  # the name of the check that is being made

    def finding(self, what: str, cause: str, line: str) -> Finding:
        """Return a finding of this check."""
        return Finding(self.check, what, cause, line)

    def partly(self, why: str) -> NotChecked:
        """Return the reason why a part of this check is not made."""
        return NotChecked(self.check, why, partly=True)

    def skip_if_spared(self, calls: str) -> None:
        """End the check if calls have side effects that the user does not allow to be repeated."""
        skip_if(
            not (self.subject.is_pure or self.repeats_effects),
            f"the function is stateful, and this takes {calls}: "
            "hostcall.check(..., repeat_effects=True) makes them.",
        )

    @functools.cached_property
    def base(self) -> Called:
        """The first call."""
        given = self.subject.arguments
        called = self.subject.call(given.base)
        if called.error is not None and given.tie():
            return self.subject.call(given.base)
        return called

    @functools.cached_property
    def first_results(self) -> list[np.ndarray]:
        """The results of the first call, as they were when it returned."""
        return self.subject.arrays(self.base)

    @functools.cached_property
    def again(self) -> Called:
        """A second call with equal arguments."""
        _ = self.first_results  # copies, before a call can change them
        return self.subject.call(self.base.sample)

    @functools.cached_property
    def repeats(self) -> bool:
        """True if the function has returned the same twice."""
        return self._is_as_first(self.again)

    def still_repeats(self) -> bool:
        """Return whether the function, if stateful, still returns the results of the first call."""
        if self.subject.is_pure or not self.repeats:
            return True
        return self._is_as_first(self.subject.call(self.base.sample))

    def _is_as_first(self, called: Called) -> bool:
        return called.error is None and not differing(
            self.first_results, self.subject.arrays(called)
        )

    def variants(self, count: int) -> list[Called]:
        """Make `count` calls with different values; end the check if they raise."""
        skip_if(self.subject.arguments.fixed, "the parts of composite tensors are not changed")
        raised = ""
        for rolls in (True, False):
            samples = [self.base.sample.varied(number, rolls) for number in range(count)]
            called = [self.subject.call(sample) for sample in samples]
            errors = [one.raised for one in called if one.error is not None]
            if not errors:
                return called
            raised = raised or errors[0]
        raise SkipError(f"with other values it raises {raised}")

    @property
    def varies(self) -> bool:
        """True if calls with other sizes say something of the function."""
        given = self.subject.arguments
        return given.can_vary and (given.has_free_sizes or self.subject.has_shape_function)

    @functools.cached_property
    def other_sizes(self) -> list[Called]:
        """Calls with other sizes. One that raises is repeated with `of_size(..., apart=False)`."""
        called: list[Called] = []
        _ = self.base
        for size in arguments.SIZES if self.varies else ():
            for apart in (True, False):
                one = self.subject.call(self.subject.arguments.of_size(size, apart))
                if one.error is None:
                    break
            called.append(one)
        return called

    @property
    def all_sizes(self) -> list[Called]:
        """The first call and those with other sizes that have returned."""
        return [self.base, *(one for one in self.other_sizes if one.error is None)]


def differing(
    some: list[np.ndarray], others: list[np.ndarray], rounding: float | None = None
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return the index and both values of each result that differs, where NaNs equal NaNs."""
    # `rounding` is the tolerance for numbers, relative to the largest. None is for equal calls:
    # libraries may add numbers in another order.
    return [
        (index, one, other)
        for index, (one, other) in enumerate(zip(some, others, strict=True))
        if not _are_equal(one, other, rounding)
    ]


def differences(
    some: list[np.ndarray], others: list[np.ndarray], between: str, rounding: float | None = None
) -> list[str]:
    """Return each result that differs as text, by value or by shape, with words between them."""
    found = []
    for index, one, other in differing(some, others, rounding):
        is_alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        now, before = (
            lines.shown(array) if is_alike else f"{array.dtype} of shape {array.shape}"
            for array in (one, other)
        )
        found.append(f"result {index} is {now}{between}{before}")
    return found


def _are_equal(one: np.ndarray, other: np.ndarray, rounding: float | None) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "OSU":
        return bool(one.tolist() == other.tolist())
    if one.tobytes() == other.tobytes():
        return True
    if not arguments.precision(one.dtype):
        return False
    if rounding is None:
        rounding = _ULPS * arguments.precision(other.dtype)
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    finite = np.abs(other[np.isfinite(other)])
    limit = rounding * float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(one, other, rtol=0.0, atol=limit, equal_nan=True))
