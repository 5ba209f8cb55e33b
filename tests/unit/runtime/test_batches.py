"""hostcall_runtime._mapped_calls: structures of arrays that are divided and put together."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

from hostcall_runtime import _mapped_calls

X = np.arange(12).reshape(4, 3)

Pair = collections.namedtuple("Pair", ["first", "second"])


def test_structures_keep_their_kind() -> None:
    value = ([X, {"b": X.T, "a": X}], Pair(X, 5))
    axes = ([-2, {"a": 0, "b": 1}], (0, None))
    assert _mapped_calls.size_of(value, axes, "f") == 4
    parts = [_mapped_calls.part_of(value, axes, n, n + 2, "f") for n in (0, 2)]
    assert [type(part) for part in parts[1]] == [list, Pair]
    assert list(parts[1][0][1]) == ["b", "a"]
    assert parts[1][1].second == 5
    again = _mapped_calls.joined([part[0] for part in parts], axes[0], "f")
    np.testing.assert_array_equal(again[0], X)
    np.testing.assert_array_equal(again[1]["b"], X.T)


def test_what_is_passed_whole_is_copied_and_added_up() -> None:
    value, axes = (X, X), (0, None)
    part = _mapped_calls.part_of(value, axes, 0, 2, "f")
    assert part[0].base is X.base or part[0].base is X
    assert not np.shares_memory(part[1], X)
    np.testing.assert_array_equal(_mapped_calls.joined([X, X, X], None, "f"), 3 * X)


def test_results_may_be_none_or_alone() -> None:
    assert _mapped_calls.joined([None, None], 0, "f") is None
    assert _mapped_calls.joined([(), ()], 0, "f") == ()
    twice = np.concatenate([X, X])
    np.testing.assert_array_equal(_mapped_calls.joined([X, X], (0,), "f"), twice)
    [joined] = _mapped_calls.joined([[X], [X]], ((0,),), "f")
    np.testing.assert_array_equal(joined, twice)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        *((axes, "is no axis") for axes in (True, "0", 1.0, (0, "x"))),
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
