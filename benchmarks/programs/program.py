"""A program as people write it, from whose one source all ways of running it are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


def call(function: Function, arguments: Sequence[Any]) -> Any:
    """Call a function once, which is how most programs are used."""
    return function(*arguments)


@dataclass(frozen=True)
class Program:
    """A program to time.

    Attributes:
      name: what it does, for the reader of the table.
      build: makes the program, given a decorator for each part that XLA could compile by itself.
      arguments: what a step is called with.
      drive: calls a step with the arguments.
    """

    name: str
    build: Callable[[Decorator], Function]
    arguments: Sequence[Any]
    drive: Callable[[Function, Sequence[Any]], Any] = call

    def compiled(self) -> Callable[[], Any]:
        """Return the step as one compiled function, by hostcall or, where that is off, by stock."""
        return self._step(tf.function(self.build(_as_it_is), jit_compile=True))

    def in_graph(self) -> Callable[[], Any]:
        """Return the step in graph mode."""
        return self._step(tf.function(self.build(_as_it_is)))

    def bound(self) -> Callable[[], Any]:
        """Return the compiled step without what `tf.function` does in Python for each call."""
        return self._step(hostcall.bind(self.build(_as_it_is), *self.arguments))

    def by_hand(self) -> Callable[[], Any]:
        """Return the step in graph mode with compiled parts, as one writes it without hostcall."""
        return self._step(tf.function(self.build(_compiled)))

    def _step(self, function: Function) -> Callable[[], Any]:
        return lambda: self.drive(function, self.arguments)


def _as_it_is(part: Function) -> Function:
    return part


def _compiled(part: Function) -> Function:
    compiled: Function = tf.function(part, jit_compile=True)
    return compiled


def draws(*shape: int, seed: int = 0) -> tf.Tensor:
    """Return numbers of a normal distribution."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def corners(*shape: int, seed: int = 0) -> tf.Tensor:
    """Return boxes (y0, x0, y1, x1) in an image of 512 x 512."""
    random = np.random.default_rng(seed)
    low = random.uniform(0, 448, (*shape, 2))
    return tf.constant(
        np.concatenate([low, low + random.uniform(8, 64, low.shape)], -1), tf.float32
    )
