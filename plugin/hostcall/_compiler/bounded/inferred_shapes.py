"""The sizes that TensorFlow itself knows of the values in a FunctionDef."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._compiler.bounded.sizes import Shape
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds, protos
from hostcall._tf.types import FunctionDef, NodeDef

_SHAPES = "_output_shapes"
_INTEGERS = (tf.int32, tf.int64)
_LONGEST = 64  # of vectors that tell sizes
_DTYPES_WITHOUT_SHAPE = (tf.resource, tf.variant)


def argument_shapes(function: FunctionDef) -> list[Shape | None]:
    """What is written of the shapes of a FunctionDef's arguments."""
    found = []
    for index, argument in enumerate(function.signature.input_arg):
        attributes = function.arg_attr[index].attr if index in function.arg_attr else {}
        known = attributes[_SHAPES].list.shape if _SHAPES in attributes else []
        dtype = tf.as_dtype(argument.type)
        without = dtype in _DTYPES_WITHOUT_SHAPE or not known
        found.append(None if without else sizes_of(tf.TensorShape(known[0])))
    return found


def sizes_of(shape: tf.TensorShape) -> Shape | None:
    """The sizes of a TensorShape; None where its rank is not known."""
    return None if shape.rank is None else tuple(shape.as_list())


class Inferred:
    """A function as a graph that TensorFlow has inferred shapes in.

    Args:
      function: a FunctionDef.
      shapes: of its arguments.
      functions: FunctionDefs by name.
    """

    def __init__(
        self, function: FunctionDef, shapes: Sequence[Shape | None], functions: Mapping[str, Any]
    ) -> None:
        self._types = defs.Types(function, functions)
        self._functions = functions
        self._nodes = {node.name: node for node in function.node_def}
        self._arguments = {arg.name: arg for arg in function.signature.input_arg}
        graph_def = tf.compat.v1.GraphDef()
        graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
        for argument, shape in zip(function.signature.input_arg, shapes, strict=True):
            graph_def.node.append(_placeholder(argument.name, argument.type, shape))
        for node in function.node_def:
            graph_def.node.extend(self._copies(node))
        self._graph = tf.Graph()
        try:
            with self._graph.as_default():
                tf.import_graph_def(graph_def, name="")
        except ValueError:  # TensorFlow will say so itself
            self._graph = tf.Graph()

    def shape(self, node: str, index: int) -> Shape | None:
        """What TensorFlow knows of the shape of a node's result."""
        tensor = self._tensor(node, index)
        return None if tensor is None else sizes_of(tensor.shape)

    def contents(self, node: str, index: int) -> Shape | None:
        """The elements of a result that may tell sizes; None in the place of those not known."""
        tensor = self._tensor(node, index)
        if tensor is None or tensor.dtype not in _INTEGERS or tensor.shape.rank not in (0, 1):
            return None
        count = tensor.shape.num_elements()
        if count is None or count > _LONGEST:
            return None
        value = tf.get_static_value(tensor)
        return (None,) * count if value is None else tuple(int(n) for n in value.flatten())

    def count(self, node: str) -> int:
        """How many results a node has."""
        return sum(len(types) for types in self._types.of_node(node).values())

    def position(self, value: str) -> tuple[str, int]:
        """The node, or the argument, and the number of a result, of an input of a node."""
        name, _, result = value.partition(":")
        if name in self._arguments:
            return name, 0
        return name, self._types.position(name, result)

    def _tensor(self, node: str, index: int) -> Any:
        name, place = self._place(node, index)
        try:
            return self._graph.get_operation_by_name(name).outputs[place]
        except (KeyError, IndexError):
            return None

    def _place(self, node: str, index: int) -> tuple[str, int]:
        if node in self._nodes and self._is_opaque(self._nodes[node]):
            return f"{node}/hostcall_result_{index}", 0
        return node, index

    def _is_opaque(self, node: NodeDef) -> bool:
        variable = node.op == "ReadVariableOp" and self._variable_shape(node) is not None
        called = defs.called_functions(node, self._functions)
        return variable or node.op in op_kinds.SCRIPT_OPS or bool(called)

    def _variable_shape(self, node: NodeDef) -> Shape | None:
        argument = self._arguments.get(defs.source(node.input[0]))
        if argument is None or not argument.handle_data:
            return None
        return sizes_of(tf.TensorShape(argument.handle_data[0].shape))

    def _copies(self, node: NodeDef) -> list[Any]:
        """What stands for a node in the graph: placeholders for what the graph cannot hold."""
        if self._is_opaque(node):
            types = [t for some in self._types.of_node(node.name).values() for t in some]
            known = node.attr["output_shapes"].list.shape if "output_shapes" in node.attr else []
            shapes = [sizes_of(tf.TensorShape(shape)) for shape in known]
            if node.op == "ReadVariableOp":
                shapes = [self._variable_shape(node)]
            shapes += [None] * (len(types) - len(shapes))
            return [
                _placeholder(f"{node.name}/hostcall_result_{i}", dtype, shapes[i])
                for i, dtype in enumerate(types)
            ]
        copy = protos.node_def_pb2.NodeDef()
        copy.CopyFrom(node)
        copy.device = ""
        for name in [name for name in copy.attr if name.startswith("_")]:
            del copy.attr[name]
        values = [self.position(value) for value in node.input if not value.startswith("^")]
        copy.input[:] = ["{}:{}".format(*self._place(*value)) for value in values]
        return [copy]


def _placeholder(name: str, dtype: int, shape: Shape | None) -> Any:
    node = protos.node_def_pb2.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    sizes = None if shape is None else [n if isinstance(n, int) else None for n in shape]
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    return node
