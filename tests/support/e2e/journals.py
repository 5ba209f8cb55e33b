"""Programs that keep a journal of their calls."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall  # noqa: F401 - what is tested

Program = Callable[..., Any]


class Journal:
    """Script ops that write down each of their calls.

    Attributes:
      entries: for each call its tag and the first element of what it was given.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []

    def tags(self) -> list[str]:
        return [tag for tag, _ in self.entries]

    def numpy(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        return self._shaped(tf.numpy_function(self._noting(tag), [x], x.dtype), x)

    def eager(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        def note(value: tf.Tensor) -> tf.Tensor:
            self.note(tag, value.numpy())
            return value + 1

        return self._shaped(tf.py_function(note, [x], x.dtype), x)

    def v1(self, tag: str, x: tf.Tensor) -> tf.Tensor:
        return self._shaped(tf.compat.v1.py_func(self._noting(tag), [x], x.dtype), x)

    def say(self, tag: str) -> None:
        """A call that nothing but its place in the program orders: no inputs, no results."""
        tf.numpy_function(lambda: self.note(tag), [], [])

    def ticket(self) -> tf.Tensor:
        """A call without inputs whose result tells how many calls came before it."""

        def draw() -> Any:
            self.note("ticket")
            return np.int64(len(self.entries))

        ticket = tf.numpy_function(draw, [], tf.int64)
        ticket.set_shape([])
        return ticket

    def _noting(self, tag: str) -> Callable[[Any], Any]:
        def note(value: Any) -> Any:
            self.note(tag, value)
            return value + value.dtype.type(1)

        return note

    def note(self, tag: str, value: Any = 0.0) -> None:
        """Write down a call of the test's own."""
        self.entries.append((tag, float(np.ravel(value)[0])))

    @staticmethod
    def _shaped(result: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        result.set_shape(x.shape)
        return result


def same_order(program: Program, *args: Any, **options: Any) -> list[str]:
    """Run a program of a journal and tensors in plain graph mode and compiled.

    Results and calls must be the same, each time that it runs. Returns the tags of the calls.
    """
    plain, compiled = Journal(), Journal()
    stock = tf.function(functools.partial(program, plain), **options)
    jitted = tf.function(functools.partial(program, compiled), jit_compile=True, **options)
    for _ in range(2):
        plain.entries.clear()
        compiled.entries.clear()
        expected, actual = stock(*args), jitted(*args)
        assert compiled.entries == plain.entries
        tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)
    return compiled.tags()


def in_order(tags: list[str], *args: Any) -> Callable[[Program], Callable[..., None]]:
    """Make a test of a program: its calls on these arguments have these tags, in this order.

    What the program takes by name are parameters of the test.
    """

    def test_of(program: Program) -> Callable[..., None]:
        def test(**named: Any) -> None:
            def called(journal: Journal, *args: tf.Tensor) -> Any:
                return program(journal, *args, **named)

            assert same_order(called if named else program, *args) == tags

        taken = inspect.signature(program).parameters.values()
        by_name = [parameter for parameter in taken if parameter.kind is parameter.KEYWORD_ONLY]
        test.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
        return test

    return test_of
