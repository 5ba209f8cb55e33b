"""The lines to write where results are not as declared: in messages, and for `hostcall.check`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

# TensorFlow's names of dtypes in messages, where NumPy's differ.
_NAMES = {
    "bool": "bool_",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "string": "bytes_",
}

_TF_NAMES = {"half": "float16", "float": "float32", "double": "float64"}

_NO_RETURN = "a path of the function lacks its `return`"
_WIDE = ("double", "float64", "int64")


class Remedy(NamedTuple):
    """The likely cause of a fault, and the line to write; as text, the end of a message."""

    cause: str
    line: str

    def __str__(self) -> str:
        # The line break at the end is for what TensorFlow adds.
        return f"\nLikely cause: {self.cause}. Write:\n    {self.line}\n"


def for_count(returned: object, dtypes: Sequence[str]) -> Remedy:
    """Return the remedy for a wrong number of results; `dtypes` are the declared ones."""
    if returned is None and dtypes:
        return Remedy(_NO_RETURN, values_returned(len(dtypes)))
    if isinstance(returned, list) and len(dtypes) == 1:
        cause = "a list counts as several results, and one array is declared"
        return Remedy(cause, f"return np.asarray(y, {in_source(dtypes[0])})    # y is the list")
    cause = "the function returns more or fewer results than are declared"
    return Remedy(cause, values_returned(len(dtypes)))


def for_dtype(index: int, count: int, dtype: str, actual: str = "") -> Remedy:
    """Return the remedy for result `index` of `count`, which is `actual` and not a `dtype`."""
    if actual == "None":
        return Remedy("a path of the function returns None", values_returned(count))
    cause = f"what is computed is {actual}"
    if actual in _WIDE:
        cause = "NumPy computes in float64 and int64 unless you choose another dtype"
    return Remedy(cause, _result_made(index, count, f"np.asarray({{y}}, {in_source(dtype)})"))


def for_shape(
    index: int,
    count: int,
    dtype: str,
    actual: Sequence[int],
    declared: Sequence[int | None],
    bounded: Sequence[int] = (),
) -> Remedy:
    """Return the remedy for a result of another shape; `bounded` are the bounded dimensions."""
    known = [size for size in declared if size is not None and size >= 0]
    if not bounded and len(known) == len(declared) and math.prod(actual) == math.prod(known):
        line = _result_made(index, count, f"np.reshape({{y}}, {tuple(known)})")
        return Remedy("the elements are as many as declared, in another shape", line)
    bounds = f", {[*bounded]}" if bounded and len(actual) == len(declared) else ""
    what = "larger bounds are to be declared" if bounds else "another shape is to be declared"
    line = f"{_declared(dtype, actual, bounds)}    # for result {index}, if the function is right"
    return Remedy(f"the function is wrong, or {what}", line)


def for_rows(index: int, count: int, dtype: str) -> Remedy:
    """Return the remedy for a result whose rows have different lengths."""
    padded = f"np.array([*itertools.zip_longest(*{{y}}, fillvalue=0)], {in_source(dtype)}).T"
    cause = "a list of rows, where an array is declared; zeros at their ends make it one"
    return Remedy(cause, _result_made(index, count, padded))


def _result_made(index: int, count: int, made: str) -> str:
    """Return the line that returns a result, or assigns one of several; `{y}` stands for it."""
    if count == 1:
        return f"return {made.format(y='y')}"
    return f"y{index} = {made.format(y=f'y{index}')}    # result {index}"


def _declared(dtype: str, sizes: Sequence[int], bounds: str) -> str:
    """Return a spec of a result as source text."""
    name = _TF_NAMES.get(dtype, dtype)
    if bounds:
        return f"hostcall.BoundedSpec({[*sizes]}, tf.{name}{bounds})"
    if "tensorflow" in sys.modules:
        return f"tf.TensorSpec({[*sizes]}, tf.{name})"
    return f"jax.ShapeDtypeStruct({tuple(sizes)}, {in_source(dtype)})"


def for_structure(declared: object, returned: object) -> Remedy:
    """Return the remedy for results in another structure than `declared`."""
    cause = "a part of the declared structure is left out, or a key is misspelt"
    if returned is None:
        cause = _NO_RETURN
    return Remedy(cause, f"return {_blank(declared)}")


def _blank(structure: object) -> str:
    """Return a structure as source text, with `...` for each leaf."""
    if isinstance(structure, Mapping):
        return "{" + ", ".join(f"{k!r}: {_blank(v)}" for k, v in structure.items()) + "}"
    if not isinstance(structure, list | tuple):
        return "..."
    inside = ", ".join(map(_blank, structure))
    if hasattr(structure, "_fields"):
        return f"{type(structure).__name__}({inside})"
    if isinstance(structure, list):
        return f"[{inside}]"
    return f"({inside},)" if len(structure) == 1 else f"({inside})"


def values_returned(count: int) -> str:
    """Return the line that returns a number of values."""
    values = ["y"] if count == 1 else [f"y{i}" for i in range(count)]
    return f"return {', '.join(values)}".rstrip()


def in_source(dtype: str) -> str:
    """Return a dtype, by TensorFlow's or NumPy's name, as source text."""
    name = _NAMES.get(dtype, dtype)
    if hasattr(np, name):
        return f"np.{name}"
    return f"ml_dtypes.{name}" if hasattr(ml_dtypes, name) else repr(name)
