"""The shapes that tracing ended with, written onto the script ops of a graph.

`set_shape` changes the graph's tensor and not the op: a function's definition does not hold it.
"""

from __future__ import annotations

import tensorflow as tf

from hostcall._tf import attributes, protos
from hostcall._tf.types import NodeDef, Operation


def write(op: Operation) -> None:
    """Writes the shapes of a script op's results onto the op, once its graph is traced."""
    shapes = [shape.as_proto() for shape in of_op(op)]
    protos.set_attr(op, attributes.SHAPES, list=protos.shape_list(shapes))


def of_op(op: Operation) -> list[tf.TensorShape]:
    """The shapes of an op's results, with what `tf.ensure_shape` says right behind the op."""
    shapes = []
    for tensor in op.outputs:
        shape = tensor.shape
        for consumer in tensor.consumers():
            if consumer.type == "EnsureShape":
                shape = shape.merge_with(consumer.outputs[0].shape)
        shapes.append(shape)
    return shapes


def of_node(node: NodeDef) -> list[tf.TensorShape]:
    """The shapes that `write` has left on a NodeDef; none where it was not called."""
    if attributes.SHAPES not in node.attr:
        return []
    return [tf.TensorShape(shape) for shape in node.attr[attributes.SHAPES].list.shape]
