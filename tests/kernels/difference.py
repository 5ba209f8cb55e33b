"""The differences between the results of two kernels, beyond rounding."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.call import ARRAY, Call

SHAPE, DTYPE, COUNT = "shape", "dtype", "count of results"
VALUE, NAN, INFINITE = "value", "nan", "infinite"
ZERO_SIGN, DENORMAL, ROUNDING = "sign of zero", "denormal", "rounding"
RAISES = "only the CPU raises"
REFUSED, CPU_REFUSES, CRASH = "XLA refuses", "both refuse", "crash"

# A difference of no more than so many times a call's tolerance is called rounding.
_ROUNDING = 32


@dataclasses.dataclass(frozen=True)
class Difference:
    """A difference of one result.

    Attributes:
      what: its class, one of the constants of this module.
      result: the number of the result.
      text: what the two kernels gave.
      error: the largest difference, in what the call allows.
    """

    what: str
    result: int = 0
    text: str = ""
    error: float = 0.0


def compare(call: Call, cpu: list[Any], xla: list[Any]) -> list[Difference]:
    """Return the differences of the results of a call, at most one of each class a result."""
    if len(cpu) != len(xla):
        return [Difference(COUNT, text=f"{len(cpu)} and {len(xla)}")]
    found = []
    for number, (expected, actual) in enumerate(zip(cpu, xla, strict=True)):
        if call.results is None or number in call.results:
            found += _compare(call, number, expected, actual)
    return found


def _compare(call: Call, number: int, expected: Any, actual: Any) -> list[Difference]:
    if expected.dtype != actual.dtype:
        return [Difference(DTYPE, number, f"{expected.dtype} and {actual.dtype}")]
    if expected.shape != actual.shape:
        return [Difference(SHAPE, number, f"{expected.shape} and {actual.shape}")]
    if call.shapes_only or not expected.size:
        return []
    if expected.dtype.kind in "iubSO":
        return _of_whole_numbers(number, expected, actual)
    if expected.dtype.kind == "c":
        real = _of_floats(call, number, expected.real, actual.real, np.abs(expected))
        return real or _of_floats(call, number, expected.imag, actual.imag, np.abs(expected))
    try:
        ml_dtypes.finfo(expected.dtype)
    except ValueError:
        return _of_whole_numbers(number, expected.astype(np.int64), actual.astype(np.int64))
    return _of_floats(call, number, expected, actual, None)


def _of_whole_numbers(number: int, expected: Any, actual: Any) -> list[Difference]:
    wrong = np.asarray(expected != actual)
    if not wrong.any():
        return []
    return [Difference(VALUE, number, _example(expected, actual, wrong), np.inf)]


def _of_floats(call: Call, number: int, expected: Any, actual: Any, size: Any) -> list[Difference]:
    limits = ml_dtypes.finfo(expected.dtype)
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    found = []
    nan = np.isnan(wide_expected) != np.isnan(wide_actual)
    infinite = ~nan & (np.isinf(wide_expected) | np.isinf(wide_actual))
    infinite &= (wide_expected != wide_actual) & ~np.isnan(wide_expected)
    for what, wrong in ((NAN, nan), (INFINITE, infinite)):
        if wrong.any():
            found.append(Difference(what, number, _example(expected, actual, wrong), np.inf))
    finite = np.isfinite(wide_expected) & np.isfinite(wide_actual)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(finite, np.abs(wide_expected - wide_actual), 0.0)
    scale = np.abs(wide_expected if size is None else size.astype(np.float64))
    scale = np.where(np.isfinite(scale), scale, 0.0)
    if call.scale == ARRAY and finite.any():
        scale = np.full_like(scale, max(scale[finite].max(), float(limits.tiny)))
    allowed = np.maximum(call.ulps, 0.5) * float(limits.eps) * scale
    wrong = error > allowed
    tiny = wrong & (np.maximum(np.abs(wide_expected), np.abs(wide_actual)) < float(limits.tiny))
    tiny |= wrong & (error <= 4 * float(limits.tiny))
    found += _by_size(number, expected, actual, wrong & ~tiny, error, allowed)
    zeros = (wide_expected == 0) & (wide_actual == 0)
    zeros &= np.signbit(wide_expected) != np.signbit(wide_actual)
    for what, where in ((DENORMAL, tiny), (ZERO_SIGN, zeros)):
        if where.any():
            found.append(Difference(what, number, _example(expected, actual, where)))
    return found


def _by_size(
    number: int, expected: Any, actual: Any, wrong: Any, error: Any, allowed: Any
) -> list[Difference]:
    if not wrong.any():
        return []
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(wrong, error / allowed, 0.0)
    worst = float(times.max())
    what = ROUNDING if worst <= _ROUNDING else VALUE
    text = _example(expected, actual, times == worst)
    return [Difference(what, number, f"{text}, {int(wrong.sum())} of {wrong.size}", worst)]


def _example(expected: Any, actual: Any, wrong: Any) -> str:
    where = tuple(int(index[0]) for index in np.nonzero(wrong)) if wrong.ndim else ()
    place = f" at {list(where)}" if where else ""
    return f"{expected[where]} on the CPU, {actual[where]} by XLA{place}"
