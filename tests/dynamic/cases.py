"""The cases: which source meets which use, beside what, and with which gradient."""

import dataclasses
import inspect
import itertools
import operator
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tests.dynamic import uses
from tests.dynamic.sources import DATA, FREE, SIZE, SOURCES

# What stands beside a use and keeps stock XLA from compiling it, or nothing.
PRINT, SHOWN, NUMPY, PARTITION, ALONE = "print", "shown", "numpy", "partition", "alone"
MODES = (PRINT, SHOWN, NUMPY, PARTITION)

NONE, INSIDE, OUTSIDE = "none", "inside", "outside"
GRADIENTS = (NONE, INSIDE, OUTSIDE)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and how it is called.

    Attributes:
      source: a name in `SOURCES`.
      use: a name in `USES`.
      mode: what stands beside it: a tf.print of the arguments ("print") or of the value ("shown"),
        a numpy_function of known shape ("numpy") or of unknown shape ("partition"), or nothing
        ("alone").
      gradient: whether a tape is inside of the compiled function, outside, or nowhere ("none").
    """

    source: str
    use: str
    mode: str
    gradient: str

    @property
    def id(self) -> str:
        """Return what repeats it on the command line."""
        return "/".join(dataclasses.astuple(self))

    @classmethod
    def of_id(cls, text: str) -> Self:
        case = cls(*text.split("/"))
        known = SOURCES, uses.USES, (*MODES, ALONE), GRADIENTS
        assert all(map(operator.contains, known, dataclasses.astuple(case))), f"no case {text}"
        return case

    @property
    def data(self) -> list[str]:
        """Return the data of its calls, in an order of its own."""
        return random.Random(zlib.crc32(self.id.encode())).sample(list(DATA), len(DATA))


def choose(
    seed: int,
    sources: Iterable[str] = SOURCES,
    names: Iterable[str] = uses.USES,
    modes: Sequence[str] = MODES,
    gradients: Sequence[str] = GRADIENTS,
) -> Iterator[Case]:
    """Go through all combinations, in an order that the seed says.

    Each pass has each pair of a source and a use once. The order within a pass spreads over all
    of them, so that the first few hundred of it are a fair sample.
    """
    chance = random.Random(seed)
    pairs = list(itertools.product(sources, names))
    ways = list(itertools.product(modes, gradients))
    orders = {pair: chance.sample(ways, len(ways)) for pair in pairs}
    for i in range(len(ways)):
        for pair in chance.sample(pairs, len(pairs)):
            yield Case(*pair, *orders[pair][i])


def build(case: Case, jit: bool) -> Callable[..., Any]:
    """Make the function that is called with `x` and `m`, compiled or in plain graph mode."""
    source, use = SOURCES[case.source], uses.USES[case.use]

    def used(value: Any, x: Any) -> list[Any]:
        if case.mode == SHOWN:
            tf.print(value, output_stream="file:///dev/null")
        return tf.nest.flatten(use(*uses.operands(use, value, x)))

    def program(x: Any, m: Any) -> list[Any]:
        if "use" in inspect.signature(source).parameters:
            return [source(x, m, lambda value: uses.whole(used(value, x)))]
        return used(source(x, m), x)

    def with_neighbour(x: Any, m: Any) -> tuple[list[Any], list[Any]]:
        beside = _neighbour(case.mode, x)
        return program(x, m), beside

    def with_tape(x: Any, m: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch([x, m])
            results, beside = inner(x, m)
            loss = uses.total(results)
        gradients = tape.gradient(loss, [x, m], unconnected_gradients="zero")
        return [*results, *beside, *map(tf.convert_to_tensor, gradients)]

    specs = [tf.TensorSpec([None], tf.float32), tf.TensorSpec([None, 3], tf.float32)]
    options: dict[str, Any] = {"jit_compile": jit, "autograph": False}
    options |= {"input_signature": specs} if case.source in FREE else {}
    inner: Callable[..., Any] = with_neighbour
    if case.gradient == INSIDE:
        return tf.function(with_tape, **options)
    inner = tf.function(with_neighbour, **options)
    return with_tape if case.gradient == OUTSIDE else inner


def _neighbour(mode: str, x: Any) -> list[Any]:
    if mode == PRINT:
        tf.print("x", x, output_stream="file:///dev/null")
    if mode not in (NUMPY, PARTITION):
        return []
    y = tf.numpy_function(np.sort, [x], tf.float32)
    if mode == NUMPY:
        y.set_shape([SIZE])
    return [y]
