"""Sizes of native code's results that a process without Python can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from hostcall._saving.encoding import sizes_of
from hostcall._saving.tokens import Size

SPEC = tf.TensorSpec([None, None], tf.float32)
FIRST, SECOND = Size(input=0, dimension=0), Size(input=0, dimension=1)


def sizes(shape: Callable[..., Any], *inputs: tf.TensorSpec) -> Any:
    return sizes_of(lambda specs: [tf.TensorSpec(shape(*specs[0].shape), tf.float32)], inputs)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (lambda n, m: [n, m], [FIRST, SECOND]),
        (lambda n, m: [m, 3, n], [SECOND, Size(3), FIRST]),
        (lambda n, m: [], []),
        (lambda n, m: [n * 1], [FIRST]),
    ],
)
def test_sizes_of_inputs_and_numbers(shape: Any, found: list[Size]) -> None:
    assert sizes(shape, SPEC) == [found]


@pytest.mark.parametrize(
    "shape",
    [
        lambda n, m: [n + 1],
        lambda n, m: [n * m],
        lambda n, m: [max(n, m)],
        lambda n, m: [min(n, m)],
        lambda n, m: [max(n, 1)],
        lambda n, m: [min(n, 1000)],
        lambda n, m: [n if n % 2 else n + 1],
        lambda n, m: [n] * (1 if n > 50 else 2),
        lambda n, m: [n if m else 0],
        lambda n, m: [None],
        lambda n, m: None,
    ],
)
def test_what_is_no_size_of_an_input_is_not_taken_for_one(shape: Any) -> None:
    assert sizes(shape, SPEC) is None


def test_many_unknown_sizes() -> None:
    spec = tf.TensorSpec([None] * 6, tf.float32)
    assert sizes(lambda *sizes: sizes[:1:-1], spec) == [
        [Size(input=0, dimension=dimension) for dimension in (5, 4, 3, 2)]
    ]


def test_a_known_size_is_a_number() -> None:
    assert sizes(lambda n, m: [m], tf.TensorSpec([None, 4], tf.float32)) == [[Size(4)]]


def test_shape_functions_that_fail_and_inputs_without_a_rank() -> None:
    assert sizes(lambda n, m: [n // 0], SPEC) is None
    assert sizes_of(lambda specs: [], [tf.TensorSpec(None, tf.float32)]) is None
