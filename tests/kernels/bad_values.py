"""Calls, and values that their kernels may refuse: put into one input after another."""

import collections
import dataclasses
import functools
import importlib
import inspect
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tests.kernels.call import Call
from tests.kernels.calls_xla import XLA_ALONE
from tests.kernels.data import Data, words

# Compositions raise what their ops raise.
_MODULES = words("raising lookup state linear elementwise quantized xla layout windows")
# So many of an op are drawn at most.
_MOST = {"dtypes": 5, "shapes": 8, "attributes": 8, "use": 12}

# What the names of inputs that say how large something is hold: the largest numbers would fill the
# memory.
_SIZES = words(
    "count crops depth dims fft_length k lengths limit most multiples num paddings start"
)
_WORDS_OF_SIZES = words("max_ num_ shape size")
_LARGE = 1000
# With more than that in each dimension, a tensor is large.
_MOST_IN_ALL = 9
# TensorFlow's kernel turns the hue by whole circles until it has come back, from infinity too.
_ENDLESS = {("AdjustHue", "delta")}
_REALS = (np.nan, np.inf, -np.inf, 0.0, -1.0, float(_LARGE), 1e30)


@functools.cache
def calls(seed: int = 0) -> list[Call]:
    """Return the calls of the catalogue, and some with indices as inputs or with empty arrays."""
    data = Data(seed)
    found: list[Call] = []
    for name in _MODULES:
        for part in importlib.import_module(f"tests.kernels.calls_{name}").PARTS:
            data.start(part.__name__)
            found += (call for call in part(data) if call.kind != XLA_ALONE)
    return found


def sample(seed: int, only: Iterable[str] = ()) -> list[int]:
    """Draw calls: of each op some sets of dtypes, of shapes and of attributes, and some uses."""
    order = [n for n, call in enumerate(calls(seed)) if not only or call.op in only]
    seen: dict[tuple[str, str], set[Any]] = collections.defaultdict(set)
    drawn = []
    for number in random.Random(seed).sample(order, len(order)):
        call = calls(seed)[number]
        is_new = False
        for what, value in _parts(call).items():
            known = seen[call.op, what]
            if value not in known and len(known) < _MOST[what]:
                known.add(value)
                is_new = True
        if is_new:
            drawn.append(number)
    return sorted(drawn)


def _parts(call: Call) -> dict[str, Any]:
    """Return what tells a call from others of its op."""
    attrs = {name: value for name, value in call.attrs.items() if not isinstance(value, tf.DType)}
    return {
        "dtypes": dtypes(call),
        "shapes": tuple(np.shape(array) for array in call.flat()),
        "attributes": str(attrs),
        "use": call.note if call.function else "",
    }


def dtypes(call: Call) -> str:
    """Return the dtypes of the inputs; what tells the call from others if it has none."""
    made_by = call.note if call.function else ""
    return " ".join(str(np.asarray(array).dtype) for array in call.flat()) or made_by


@dataclasses.dataclass(frozen=True)
class Trial:
    """A call with other values.

    Attributes:
      place: the input that has them; "" if none has.
      what: what they are.
      arrays: the inputs, in the order of `Call.flat`.
    """

    place: str
    what: str
    arrays: list[Any]


def trials(call: Call) -> Iterator[Trial]:
    """Yield the call as it is, and then with other values: each time in one input."""
    arrays = [np.asarray(array) for array in call.flat()]
    names = places(call)
    yield Trial("", "unchanged", arrays)
    sizes = {size for array in arrays for size in (*array.shape, array.size)}
    for n, array in enumerate(arrays):
        if not array.size or (call.op, names[n]) in _ENDLESS:
            continue
        seen = {array.tobytes()}
        for what, other in _others(array, _is_size(names[n]), sizes):
            if other.tobytes() not in seen:
                seen.add(other.tobytes())
                yield Trial(names[n], what, [*arrays[:n], other, *arrays[n + 1 :]])


def places(call: Call) -> list[str]:
    """Return the names of the inputs, one for each array of `Call.flat`."""
    definition = op_def_registry.get(call.op)
    names = [arg.name for arg in definition.input_arg if arg.type != tf.resource.as_datatype_enum]
    if call.function:
        function = getattr(call.function, "python_function", call.function)
        parameters = inspect.signature(function).parameters.values()
        if all(parameter.kind != parameter.VAR_POSITIONAL for parameter in parameters):
            names = [parameter.name for parameter in parameters]
    if len(names) != len(call.inputs):
        return [f"input {n}" for n in range(len(call.flat()))]
    counts = [len(tf.nest.flatten([value])) for value in call.inputs]
    return [name for name, count in zip(names, counts, strict=True) for _ in range(count)]


def _is_size(name: str) -> bool:
    return name in _SIZES or any(word in name for word in _WORDS_OF_SIZES)


def _others(array: Any, is_size: bool, sizes: set[int]) -> Iterator[tuple[str, Any]]:
    kind = tf.as_dtype(array.dtype)
    if kind.is_bool:
        yield from _everywhere(array, False)
        yield from _everywhere(array, True)
        return
    if kind.is_integer:
        yield from _of_integers(array, kind, is_size, sizes)
    else:
        for value in _REALS:
            with np.errstate(over="ignore"):
                yield from _everywhere(array, np.array(value).astype(array.dtype), str(value))
        yield "all 1", np.ones_like(array)
    yield from _orders(array)


def _of_integers(
    array: Any, kind: tf.DType, is_size: bool, sizes: set[int]
) -> Iterator[tuple[str, Any]]:
    values = {-3, -2, -1, 0, 1, 2, _LARGE, *sizes, *(size + 1 for size in sizes)}
    lowest, highest = int(kind.min), int(kind.max)
    if not is_size:
        values |= {lowest, highest}
    for value in sorted(value for value in values if lowest <= value <= highest):
        for what, other in _everywhere(array, value):
            if not (is_size and value > _MOST_IN_ALL and what.startswith("all")):
                yield what, other


def _everywhere(array: Any, value: Any, text: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the array with a value at its begin, middle and end, and with nothing else."""
    text = text or str(value)
    count = array.size
    if count == 1:
        yield text, np.full_like(array, value)
        return
    for name, index in (("first", 0), ("middle", count // 2), ("last", count - 1)):
        other = array.copy()
        other.reshape(-1)[index] = value
        yield f"{text} {name}", other
    yield f"all {text}", np.full_like(array, value)


def _orders(array: Any) -> Iterator[tuple[str, Any]]:
    if array.size > 1:
        flat = array.reshape(-1)
        yield "backwards", flat[::-1].reshape(array.shape).copy()
        other = array.copy()
        other.reshape(-1)[-1] = flat[0]
        yield "the first also last", other
