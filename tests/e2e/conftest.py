"""Fixtures: programs that keep a journal of their calls, recordings, other Python processes."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested
from tests.support.recordings import Machine


class Journal:
    """Script ops that write down each of their calls.

    Attributes:
      entries: for each call its tag and the first element of what it was given.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []

    def numpy(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        return self._shaped(tf.numpy_function(self._noting(tag), [x], x.dtype), x)

    def eager(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        def note(value: tf.Tensor) -> tf.Tensor:
            self._note(tag, value.numpy())
            return value + 1

        return self._shaped(tf.py_function(note, [x], x.dtype), x)

    def v1(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        return self._shaped(tf.compat.v1.py_func(self._noting(tag), [x], x.dtype), x)

    def say(self, tag: str) -> None:
        """A call that nothing but its place in the program orders: no inputs, no results."""
        tf.numpy_function(lambda: self._note(tag, 0.0), [], [])

    def ticket(self) -> tf.Tensor:
        """A call without inputs whose result tells how many calls came before it."""

        def draw() -> Any:
            self._note("ticket", 0.0)
            return np.int64(len(self.entries))

        ticket = tf.numpy_function(draw, [], tf.int64)
        ticket.set_shape([])
        return ticket

    def _noting(self, tag: str) -> Callable[[Any], Any]:
        def note(value: Any) -> Any:
            self._note(tag, value)
            return value + value.dtype.type(1)

        return note

    def _note(self, tag: str, value: Any) -> None:
        self.entries.append((tag, float(np.ravel(value)[0])))

    @staticmethod
    def _shaped(result: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        result.set_shape(x.shape)
        return result


Program = Callable[..., Any]


@pytest.fixture
def same_order() -> Callable[..., list[str]]:
    """Runs a program of a journal and tensors in plain graph mode and compiled.

    Results and calls must be the same, each time that it runs. Returns the tags of the calls.
    """

    def run(program: Program, *args: Any, **options: Any) -> list[str]:
        plain, compiled = Journal(), Journal()
        stock = tf.function(functools.partial(program, plain), **options)
        jitted = tf.function(functools.partial(program, compiled), jit_compile=True, **options)
        for _ in range(2):
            plain.entries.clear()
            compiled.entries.clear()
            expected, actual = stock(*args), jitted(*args)
            assert compiled.entries == plain.entries
            tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)
        return [tag for tag, _ in compiled.entries]

    return run


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    """The path of a recording."""
    return str(tmp_path / "run.hostcall")


@pytest.fixture
def machine() -> Machine:
    """What a function measures with."""
    return Machine()
