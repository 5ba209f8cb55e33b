"""A call of a kernel: an op, its attributes and its inputs, or a function of several ops."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import op_def_registry

from tests.kernels.data import words

# Relative to the largest number of a result, not to each of its elements: sums of many terms.
ARRAY = "array"
ELEMENT = "element"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call, and how its results may differ.

    Attributes:
      op: the name of the op that the call is about.
      inputs: an array for each input, or a list of arrays for an input of several tensors.
      attrs: the attributes that do not follow from the inputs.
      function: what to call on the inputs instead of the op.
      ulps: how many units in the last place the results may differ by.
      scale: what these units are relative to, ARRAY or ELEMENT.
      note: what tells this call from others of the op, for reports.
      kind: the class of a difference of this call, where it is not a wrong result.
      results: the numbers of the results that are compared; all of them if it is None.
      shapes_only: whether shapes and dtypes alone are compared, such as of random numbers.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    function: Callable[..., Any] | None = None
    ulps: float = 4.0
    scale: str = ELEMENT
    note: str = ""
    kind: str = ""
    results: tuple[int, ...] | None = None
    shapes_only: bool = False

    def flat(self) -> list[Any]:
        """Return the arrays of the inputs, one after another."""
        return tf.nest.flatten(self.inputs)

    def run(self, tensors: list[Any]) -> list[Any]:
        """Return the results for tensors in the order of `flat`."""
        inputs = tf.nest.pack_sequence_as(self.inputs, tensors)
        results = self.function(*inputs) if self.function else apply(self.op, inputs, self.attrs)
        if isinstance(results, tf.Operation) or results is None:
            return []
        return [tensor for tensor in tf.nest.flatten(results) if tensor is not None]

    def text(self) -> str:
        shapes = ", ".join(_describe(value) for value in self.inputs)
        attrs = ", ".join(f"{name}={_value(value)}" for name, value in self.attrs.items())
        note = f" [{self.note}]" if self.note else ""
        return f"{self.op}({shapes}{'; ' if attrs else ''}{attrs}){note}"


# Python calls these inputs and attributes otherwise than the ops do.
_RENAMED = {
    ("Where", "input"): "condition",
    ("Select", "t"): "x",
    ("Select", "e"): "y",
    ("Squeeze", "squeeze_dims"): "axis",
    ("ExpandDims", "dim"): "axis",
    ("Split", "split_dim"): "axis",
    ("SplitV", "split_dim"): "axis",
    **{(op, "reduction_indices"): "axis" for op in words("All Any Max Mean Min Prod Sum")},
}


def raw(op: str) -> Any:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op).lower()
    return getattr(tf.raw_ops, op, None) or getattr(gen_xla_ops, snake)


def apply(op: str, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
    """Call the op with its inputs in the order of its definition."""
    definition = op_def_registry.get(op)
    names = [argument.name for argument in definition.input_arg]
    arguments = {**dict(zip(names, inputs, strict=True)), **attrs}
    return raw(op)(**{_RENAMED.get((op, name), name): value for name, value in arguments.items()})


def traced(function: Callable[..., Any], *args: Any) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*args)


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_describe, value))}]"
    array = np.asarray(value)
    dims = ",".join(map(str, array.shape))
    small = array.dtype.kind in "iu" and array.size <= 6
    return f"{array.dtype}[{dims}]" + (f"={array.tolist()}" if small else "")


def _value(value: Any) -> str:
    return str(value.name if isinstance(value, tf.DType) else value)
