"""Ops that XLA gets wrong, written in others that it gets right, so that they stay in the program.

What `wrong_kernels.py` lists and is not here goes to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler import wrong_kernels
from hostcall._compiler.function_edits import FunctionEdits
from hostcall._compiler.node_writer import NodeWriter
from hostcall._tf import function_defs as defs
from hostcall._tf.types import Functions, NodeDef

_BOOL = tf.bool.as_datatype_enum
_COMPLEX = {
    tf.complex64.as_datatype_enum: tf.float32.as_datatype_enum,
    tf.complex128.as_datatype_enum: tf.float64.as_datatype_enum,
}
# Of tf.nn.selu.
_SCALE, _SCALE_ALPHA = 1.0507009873554805, 1.7580993408473768


class Writer(NodeWriter):
    """Makes the nodes that take the place of one, of its dtype where nothing else is said."""

    def __init__(self, node: NodeDef) -> None:
        super().__init__(f"{node.name}/hostcall", node.device)
        self.node = node

    @property
    def inputs(self) -> list[str]:
        """The values that the node takes."""
        return [value for value in self.node.input if not value.startswith("^")]

    def add(self, op: str, *inputs: str, **types: int) -> str:
        """Add a node; returns its first result. `types` are attributes."""
        return super().add(op, *inputs, **(types or {"T": self.node.attr["T"].type}))

    def again(self, *inputs: str) -> str:
        """Add the same op with other operands; returns its result."""
        value = self.add(self.node.op, *inputs)
        for name, attribute in self.node.attr.items():
            self.nodes[-1].attr[name].CopyFrom(attribute)
        return value


def _abs(writer: Writer) -> str:
    (x,) = writer.inputs
    return writer.add("Maximum", x, writer.add("Neg", x))


def _complex_to_bool(writer: Writer) -> str:
    complex_type = writer.node.attr["SrcT"].type
    (x,), real = writer.inputs, _COMPLEX[complex_type]
    return writer.add(
        "Cast", writer.add("Real", x, T=complex_type, Tout=real), SrcT=real, DstT=_BOOL
    )


def _safe_gradient(writer: Writer) -> str:
    """Zero where the incoming gradient is zero, whatever the derivative is there."""
    y, gradient = writer.inputs
    if writer.node.attr["T"].type in _COMPLEX:
        y = writer.add("Conj", y)
    zeros = writer.add("ZerosLike", gradient)
    is_zero = writer.add("Equal", gradient, zeros)
    return writer.add("SelectV2", is_zero, zeros, writer.again(y, gradient))


def _selu_gradient(writer: Writer) -> str:
    gradients, outputs = writer.inputs
    dtype = writer.node.attr["T"].type
    is_negative = writer.add("Less", outputs, writer.constant(0.0, dtype))
    slope = writer.add("AddV2", outputs, writer.constant(_SCALE_ALPHA, dtype))
    slope = writer.add("SelectV2", is_negative, slope, writer.constant(_SCALE, dtype))
    return writer.add("Mul", gradients, slope)


def _cut_to_shape(writer: Writer) -> str:
    shape, *rest = writer.inputs
    index = writer.node.attr["Index"].type
    begin = writer.add("ZerosLike", shape, T=index)
    dtype = writer.node.attr["T"].type
    return writer.add("Slice", writer.again(shape, *rest), begin, shape, T=dtype, Index=index)


def _ones_like(writer: Writer) -> str:
    dtype = writer.node.attr["T"].type
    zeros = writer.add("ZerosLike", *writer.inputs)
    return writer.add("Cast", writer.add("Equal", zeros, zeros), SrcT=_BOOL, DstT=dtype)


TABLE: Mapping[str, Callable[[Writer], str]] = {
    "Abs": _abs,
    "Cast": _complex_to_bool,
    "ReciprocalGrad": _safe_gradient,
    "RsqrtGrad": _safe_gradient,
    "SeluGrad": _selu_gradient,
    "SqrtGrad": _safe_gradient,
    "StridedSliceGrad": _cut_to_shape,
}


def replace(functions: Functions) -> set[str]:
    """Write the ops of FunctionDefs that XLA gets wrong in others, where that can be done.

    Args:
      functions: FunctionDefs by name, changed in place.

    Returns:
      The names of those that have changed.
    """
    changed = set()
    for name, function in functions.items():
        found = defs.nodes_of(function, TABLE)
        nodes = {node.name: node for node in function.node_def} if found else {}
        edits = FunctionEdits(function)
        for node in found:
            if wrong_kernels.reason(node, nodes):
                _put(edits, node, TABLE[node.op])
        if edits.write():
            changed.add(name)
    return changed


def replace_ones_like(functions: Functions) -> set[str]:
    """Write tensors of ones in ops that have regard for bounded sizes: see `replace`.

    XLA fills the padding with ones, too, and says of the result that its size is the bound. It is
    one where zero equals zero, and that has its true size.
    """
    changed = set()
    for name, function in functions.items():
        edits = FunctionEdits(function)
        for node in defs.nodes_of(function, {"OnesLike"}):
            _put(edits, node, _ones_like)
        if edits.write():
            changed.add(name)
    return changed


def _put(edits: FunctionEdits, node: Any, write: Callable[[Writer], str]) -> None:
    """Put what is written in front of a node, which passes it on under its old name."""
    writer = Writer(node)
    result = write(writer)
    ((name, (dtype,)),) = defs.output_types(node, {}).items()
    controls = [value for value in node.input if value.startswith("^")]
    edits.before(node.name, writer.nodes)
    edits.change(f"{node.name}:{name}:0", f"{node.name}:output:0")
    node.op = "Identity"
    node.attr.clear()
    node.attr["T"].type = dtype
    node.input[:] = [result, *controls]
