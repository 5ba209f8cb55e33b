"""Tests that callbacks between clusters share their memory with no other code, at any size."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.helpers import assert_as_plain, assert_same, jitted, to_numpy

# The first is always copied, the other one only where other code sees its memory.
each_size = pytest.mark.parametrize("size", [4, 1 << 14])

pytestmark = pytest.mark.usefixtures("partition_route")


def aligned(size: int) -> np.ndarray:
    """An array whose memory TensorFlow would share."""
    room = np.zeros(size * 4 + 64, np.uint8)
    begin = -room.ctypes.data % 64
    return room[begin : begin + size * 4].view(np.float32)


KEEPERS: dict[str, Callable[[np.ndarray, list[Any]], np.ndarray]] = {
    "its argument": lambda v, kept: (kept.append(v), v)[1],
    "a view of it": lambda v, kept: (kept.append(v[1:]), v)[1],
    "a memoryview": lambda v, kept: (kept.append(v.data), v)[1],
    "the whole of a view": lambda v, kept: (kept.append(v), v.reshape(-1))[1],
    "a new array": lambda v, kept: (kept.append(new := v + np.float32(0.0)), new)[1],
    "an aligned one": lambda v, kept: (kept.append(aligned(v.size)), copied(v, kept[-1]))[1],
}


def copied(v: np.ndarray, to: np.ndarray) -> np.ndarray:
    to[:] = v
    return to


@each_size
@pytest.mark.parametrize("keep", KEEPERS)
def test_results_do_not_change_when_the_function_writes_later(keep: str, size: int) -> None:
    kept: list[Any] = []
    function = KEEPERS[keep]

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda v: function(v, kept), [x * 2.0], tf.float32)

    results = [program(tf.range(float(size))) for _ in range(3)]
    for array in kept:
        np.asarray(array)[:] = -1.0
    for result in results:
        assert_same(result.numpy(), 2.0 * np.arange(size, dtype=np.float32))


def writing(array: np.ndarray) -> Generator[None, float]:
    """Write the number that is sent, and hold the array meanwhile for a call that comes then."""
    # From Python 3.14 on, the reference for the call is the local variable's own.
    np.copyto(array, (yield))
    yield


@each_size
def test_results_do_not_change_when_a_generator_goes_on_later(size: int) -> None:
    kept: list[Generator[None, float]] = []

    def function(v: np.ndarray) -> np.ndarray:
        kept.append(writing(v))
        next(kept[-1])
        return v

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(function, [x * 2.0], tf.float32)

    results = [program(tf.range(float(size))) for _ in range(3)]
    for generator in kept:
        generator.send(-1.0)
    for result in results:
        assert_same(result.numpy(), 2.0 * np.arange(size, dtype=np.float32))


@each_size
def test_one_value_as_two_arguments_and_one_array_as_two_results(size: int) -> None:
    def write(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a += 1.0
        return b

    @jitted
    def program(x: tf.Tensor) -> Any:
        y = x * 2.0
        a, b = tf.numpy_function(lambda v: [v, v], [y], [tf.float32, tf.float32])
        written = tf.numpy_function(lambda v: copied(-np.ones_like(v), v), [a], tf.float32)
        return tf.numpy_function(write, [y, y], tf.float32), written, b

    doubled, overwritten = 2.0 * np.arange(size, dtype=np.float32), np.full(size, -1.0, np.float32)
    assert_same(to_numpy(program(tf.range(float(size)))), (doubled, overwritten, doubled))


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "with gaps": lambda v: np.repeat(v, 2)[::2],
    "in columns": lambda v: np.asfortranarray(v.reshape(2, -1)),
    "backwards": lambda v: v[::-1],
    "of the other byte order": lambda v: v.astype(">f4"),
    "read-only": lambda v: np.broadcast_to(v, (2, v.size)),
    "at an odd address": lambda v: copied(v, np.zeros(v.size * 4 + 1, np.uint8)[1:].view("<f4")),
}


@each_size
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_all_kinds(kind: str, size: int) -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(ARRAYS[kind], [x * 2.0], tf.float32)

    assert_as_plain(program, tf.range(float(size)))
