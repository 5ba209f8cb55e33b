"""One run of `hostcall.check`: the calls that several checks share, each made once."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from hostcall._check import arguments
from hostcall._check.arguments import Sample, precision
from hostcall._check.report import Finding, NotChecked, Suggestion
from hostcall._check.subject import Called, Subject

Outcome: TypeAlias = Finding | NotChecked | Suggestion

# The tolerance between equal calls, in units in the last place of the largest number.
_ULPS = 16

# A check yields its findings, its suggestions, and the parts that it has not checked.
Check: TypeAlias = "Callable[[Trial], Iterator[Outcome]]"


@dataclasses.dataclass(frozen=True)
class Tried:
    """Arguments, and the outcome of the call with them."""

    sample: Sample
    called: Called


class Trial:
    """The calls of one run.

    Attributes:
      subject: the subject of the check.
      repeats_effects: whether a function with side effects is called as often as a pure one.
      seconds: the time that the first call took.
    """

    def __init__(self, subject: Subject, repeats_effects: bool) -> None:
        self.subject = subject
        self.repeats_effects = repeats_effects
        self.seconds = 0.0

    @property
    def is_spared(self) -> bool:
        """True if calls have side effects and the user does not allow checks to repeat them."""
        return not (self.subject.is_pure or self.repeats_effects)

    def spared(self, check: str, calls: str) -> NotChecked:
        """Return the outcome of a check that would call the function too often."""
        why = (
            f"the function is stateful, and this takes {calls}: "
            "hostcall.check(..., repeat_effects=True) makes them."
        )
        return NotChecked(check, why)

    @functools.cached_property
    def base(self) -> Tried:
        """The first call."""
        sample = self.subject.arguments.base
        began = time.monotonic()
        called = self.subject.call(sample)
        self.seconds = time.monotonic() - began
        if called.error is not None and self.subject.arguments.tie():
            sample = self.subject.arguments.base
            called = self.subject.call(sample)
        return Tried(sample, called)

    @functools.cached_property
    def first_results(self) -> list[np.ndarray]:
        """The results of the first call, as they were when it returned."""
        return self.subject.arrays(self.base.called)

    @functools.cached_property
    def again(self) -> Tried:
        """A second call with equal arguments."""
        _ = self.first_results  # copies, before a call can change them
        sample = self.base.sample
        return Tried(sample, self.subject.call(sample))

    @functools.cached_property
    def repeats(self) -> bool:
        """True if the function has returned the same twice."""
        again = self.again.called
        if again.error is not None:
            return False
        return same_twice(self.first_results, self.subject.arrays(again))

    def still_repeats(self) -> bool:
        """Return whether the function, if stateful, still returns the results of the first call."""
        if self.subject.is_pure or not self.repeats:
            return True
        called = self.subject.call(self.base.sample)
        return called.error is None and same_twice(self.first_results, self.subject.arrays(called))

    def variants(self, count: int) -> list[Tried] | str:
        """Make `count` calls with different values; return them, or the reason why they raise."""
        if self.subject.arguments.fixed:
            return "the parts of composite tensors are not changed"
        base, raised = self.base.sample, ""
        for rolls in (True, False):
            samples = [base.map(arguments.varied(number, rolls)) for number in range(count)]
            tried = [Tried(sample, self.subject.call(sample)) for sample in samples]
            errors = [one.called.raised for one in tried if one.called.error is not None]
            if not errors:
                return tried
            raised = raised or errors[0]
        return f"with other values it raises {raised}"

    @functools.cached_property
    def other_sizes(self) -> list[Tried]:
        """Calls with other sizes. One that raises is repeated with `of_size(..., apart=False)`."""
        given = self.subject.arguments
        if not given.can_vary or not (given.has_free_sizes or self.subject.has_shape_function):
            return []
        tried: list[Tried] = []
        _ = self.base
        for size in arguments.SIZES:
            for apart in (True, False):
                sample = given.of_size(size, apart)
                one = Tried(sample, self.subject.call(sample))
                if one.called.error is None:
                    break
            tried.append(one)
        return tried

    @property
    def all_sizes(self) -> list[Tried]:
        """The first call and those with other sizes that have returned."""
        return [self.base, *(one for one in self.other_sizes if one.called.error is None)]


def same(some: list[np.ndarray], others: list[np.ndarray], rounding: float = 0.0) -> bool:
    """Return whether results are equal, where NaNs equal NaNs.

    Args:
      some: the results.
      others: the results of another call.
      rounding: the tolerance for numbers, relative to the largest.
    """
    return len(some) == len(others) and all(
        _are_equal(one, other, rounding) for one, other in zip(some, others, strict=True)
    )


def same_twice(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    """Return whether results of equal calls agree: libraries may add numbers in another order."""
    roundings = [_ULPS * precision(array.dtype) for array in others]
    return len(some) == len(others) and all(map(_are_equal, some, others, roundings))


def _are_equal(one: np.ndarray, other: np.ndarray, rounding: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "OSU":
        return bool(one.tolist() == other.tolist())
    if one.tobytes() == other.tobytes():
        return True
    if not precision(one.dtype):
        return False
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    finite = np.abs(other[np.isfinite(other)])
    limit = rounding * float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(one, other, rtol=0.0, atol=limit, equal_nan=True))
