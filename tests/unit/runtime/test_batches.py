"""hostcall_runtime._mapped_calls: structures of arrays that are divided and put together."""

from typing import Any

import numpy as np
import pytest

from hostcall_runtime import _mapped_calls

X = np.arange(12).reshape(4, 3)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        *((axes, "is not an axis") for axes in (True, "0", 1.0, (0, "x"))),
        *((axes, "divides none") for axes in (None, (None, None), ())),
    ],
)
def test_axes_that_are_refused(axes: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        _mapped_calls.check_axes(axes)


@pytest.mark.parametrize(
    ("value", "axes", "message"),
    [
        ((X,), 2, r"argument 0 has the shape \(4, 3\), and so no axis 2"),
        ((X, 5), 0, r"argument 1 has the shape \(\), and so no axis 0"),
        ((X, {"a": X.T}), 0, "argument 0 has 4, argument 1\\['a'\\] has 3"),
        ((X, X), (0,), "does not fit the arguments, a tuple of 2"),
        (([X, X],), ((0,),), "does not fit the argument 0, a list of 2"),
        ((), 0, "no array that in_axes=0 divides"),
    ],
)
def test_arguments_that_cannot_be_divided_are_named(value: Any, axes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"f: .*{message}"):
        _mapped_calls.size_of(value, axes, "f")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([X, X[:, :2]], r"shapes \(4, 3\), \(4, 2\), which cannot be put together"),
        ([np.float32(1), np.float32(2)], "for each element, along the first axis"),
        ([(X,), (X, X)], "different structures"),
        ([{"a": X}, {"b": X}], "different structures"),
        ([X, None], "cannot be put together"),
    ],
)
def test_results_that_cannot_be_put_together_are_named(parts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^f has returned .*{message}"):
        _mapped_calls.joined(parts, 0, "f")
