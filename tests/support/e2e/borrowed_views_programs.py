"""Programs whose functions are lent arrays, in every way that they can be called."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import eagerly, jitted, like, partitioned, plain

# Smaller arrays are copies, in every way.
SIZES = [0, 4, 1 << 14]
LARGE = SIZES[-1]


WAYS = [jitted, partitioned, plain, eagerly]
every_way = pytest.mark.parametrize("way", WAYS)
every_size = pytest.mark.parametrize("size", SIZES)
in_programs = pytest.mark.custom_call("between clusters TensorFlow keeps the memory that is lent")


def values(size: int) -> tf.Tensor:
    return tf.range(float(size))


def double(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, 2.0, out=out)


def numbers(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float32)


def one(function: Callable[..., Any], **declared: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """A program that calls the function on what it has computed, and computes with the result."""
    declared = {"result": like, "borrow": True, **declared}
    hostcall.declare(function, **declared)
    return lambda x: tf.numpy_function(function, [x * 2.0], tf.float32) + 1.0


def lies_in_a_program(array: np.ndarray) -> bool:
    """Return whether the array is a view of lent memory, and not a copy."""
    return array.base is not None
