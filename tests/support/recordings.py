"""Programs that are recorded and replayed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import to_numpy

X = tf.constant([1.0, 2.0, -0.0])

# The ways to run a function: compiled, by graph partitioning, as a plain graph, eagerly.
ROUTES = ["compiled", "partition", "plain", "eager"]


def program_of(function: Callable[..., Any], route: str) -> Callable[..., Any]:
    if route == "eager":
        return function

    def traced(*args: Any) -> Any:
        with hostcall.scope(route="partition" if route == "partition" else "auto"):
            return function(*args)

    return tf.function(traced, jit_compile=route != "plain", autograph=False)


class Machine:
    """A machine that a program measures with, until the machine is taken away."""

    def __init__(self) -> None:
        self.count = 0
        self.is_there = True

    def use(self) -> int:
        if not self.is_there:
            raise AssertionError("a function was called in a replay")
        self.count += 1
        return self.count

    def multiply(self, x: Any) -> Any:
        """Return an array times the number of the call."""
        return x * np.float32(self.use())


def recorded(file: str, machine: Machine, run: Callable[[], Any]) -> list[bytes]:
    """Record `run`, check that a replay without the machine is equal, and return the results."""

    def results() -> list[bytes]:
        return [to_numpy(value).tobytes() for value in tf.nest.flatten(run())]

    with hostcall.record(file):
        expected = results()
    machine.is_there = False
    with hostcall.replay(file):
        assert results() == expected
    machine.is_there = True
    return expected


def refusal(file: str, run: Callable[[], Any]) -> str:
    """Return the text of the ReplayError that a replay of `run` raises."""
    with pytest.raises(hostcall.ReplayError) as error, hostcall.replay(file):
        run()
    assert error.value.__cause__ is None or isinstance(error.value.__cause__, tf.errors.OpError)
    return str(error.value)
