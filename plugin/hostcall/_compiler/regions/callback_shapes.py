"""The shapes of what a callback in a region returns, when XLA compiles the program."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hostcall._callbacks import lookup, result_shapes
from hostcall._callbacks.specs import BoundedSpec
from hostcall._tf import protos

# One that is not known, not even its rank, is None; a size that is not known is -1.
Shape = list[int] | None


def of_results(serialized: bytes, operands: Sequence[Shape]) -> list[Shape]:
    """Called for each script op of a region.

    Args:
      serialized: the op's NodeDef.
      operands: the shapes of its inputs, as far as they are known.

    Raises:
      LoweringError: when what is said of the shapes contradicts itself.
    """
    node = protos.node_def_pb2.NodeDef.FromString(serialized)
    spec = lookup.existing_spec_of(node)
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    specs = [
        tf.TensorSpec(None if shape is None else [None if s < 0 else s for s in shape], dtype)
        for shape, dtype in zip(operands, dtypes, strict=True)
    ]
    results = result_shapes.demanded(spec, node, specs)
    shapes = [None if isinstance(said, BoundedSpec) else _sizes(said.shape) for said in results]
    hidden = len(node.attr["Tout"].list.type) - len(shapes)
    return [*shapes, *[[]] * hidden]


def _sizes(shape: tf.TensorShape) -> Shape:
    return None if shape.rank is None else [-1 if s is None else s for s in shape.as_list()]
