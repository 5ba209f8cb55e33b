"""hostcall_runtime._keyword_call: which calls are the same, and how functions are called."""

import inspect
from typing import Any

import pytest

from hostcall_runtime._keyword_call import KeywordCall


def function(x: Any, y: Any = 1, *, z: Any = 2) -> Any:
    return x, y, z


def test_the_last_arguments_are_passed_by_name() -> None:
    assert KeywordCall(function, ("z",), {"y": 5})(0, 7) == (0, 5, 7)
    assert KeywordCall(function, (None, "y"))(0, 6, 7) == (0, 7, 2)
    assert KeywordCall(function)(0, z=3) == (0, 1, 3)


@pytest.mark.parametrize(
    "value", [None, True, 1, 1.0, -0.0, float("nan"), "a", b"a", (1, [2]), {"a": [1]}, len]
)
def test_equal_values_are_the_same_call(value: Any) -> None:
    first, second = (KeywordCall(function, ("z",), {"y": value}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("value", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ([1], [1.0]), ({"a": 1}, {"b": 1}), ({1}, {1})],
)
def test_other_values_and_functions_are_another_call(value: Any, other: Any) -> None:
    assert KeywordCall(function, (), {"y": value}) != KeywordCall(function, (), {"y": other})
    assert KeywordCall(function) not in (KeywordCall(len), KeywordCall(function, ("z",)), function)


def test_the_signature_is_that_of_what_is_left() -> None:
    assert str(inspect.signature(KeywordCall(function, (), {"y": 1}))) == "(x: Any, *, z: Any)"
    assert str(inspect.signature(KeywordCall(function, ("z",)))) == "(x: Any, z)"
