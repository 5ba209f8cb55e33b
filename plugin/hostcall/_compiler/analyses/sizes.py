"""Bounded sizes as symbols, and the sizes that TensorFlow's shape inference knows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds, protos
from hostcall._tf.types import FunctionDef, NodeDef

# An op whose results have bounded sizes, by the name of its function and its own.
Source: TypeAlias = tuple[str, str]

LONGEST = 64  # of the vectors that give sizes, whose elements are followed
DIFFER = "it takes sizes that may differ"


class UnprovenError(Exception):
    """The error for an op that is not known to be right with bounded sizes."""

    def __init__(self, text: str, sources: frozenset[Source] = frozenset()) -> None:
        super().__init__(text)
        self.sources = sources  # the origins of the bounded sizes, besides the op's operands


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A size that is known only at run time. Tensors with the same symbol have the same size."""

    # Its first place: the path to a node, the number of a result, and a dimension.
    origin: tuple[str, int, int]
    # The largest size, if it is known.
    bound: int | None = dataclasses.field(default=None, compare=False)
    # The sizes that it is the product of, if it is a product.
    factors: tuple[int | Symbol, ...] = dataclasses.field(default=(), compare=False)


# A number, a symbol for a size known only at run time, or None for a size that XLA will know.
Size: TypeAlias = int | Symbol | None
Shape: TypeAlias = tuple[Size, ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The known facts about a value of a program before XLA compiles it."""

    shape: Shape | None = None  # its sizes; None if not even the rank is known
    # The elements of a vector or scalar of integers that gives sizes; else None.
    contents: Shape | None = None
    tainted: bool = False  # whether bounded sizes affect its shape or its elements
    sources: frozenset[Source] = frozenset()  # the ops that those sizes come from
    # Whether XLA cannot know its elements when it compiles, even if the sizes and the arguments are
    # known: a loop, a variable or Python computes them.
    varies: bool = False

    @property
    def bounded(self) -> bool:
        """A flag that is true if a size may be bounded."""
        return self.tainted and (self.shape is None or has_symbol(self.shape))


def has_symbol(sizes: Iterable[Size]) -> bool:
    """Return whether one of these sizes is bounded."""
    return any(isinstance(size, Symbol) for size in sizes)


def product(sizes: Iterable[Size]) -> Size:
    """Return the number of elements, as the same symbol for the same sizes in any order."""
    number, symbols = 1, list[Symbol]()
    pending = [*sizes]
    while pending:
        size = pending.pop()
        if size is None:
            return None
        if not isinstance(size, Symbol):
            number *= size
        elif size.factors:
            pending += size.factors
        else:
            symbols.append(size)
    if number == 0 or not symbols:
        return number
    if number == 1 and len(symbols) == 1:
        return symbols[0]
    symbols.sort(key=lambda symbol: symbol.origin)
    name = "*".join([str(number), *(str(symbol.origin) for symbol in symbols)])
    factors: tuple[int | Symbol, ...] = (number, *symbols)
    return Symbol((name, 0, 0), _bound(factors), factors)


def _bound(factors: Iterable[int | Symbol]) -> int | None:
    bounds = [factor.bound if isinstance(factor, Symbol) else factor for factor in factors]
    known = [bound for bound in bounds if bound is not None]
    return math.prod(known) if len(known) == len(bounds) else None


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of an element-wise result; an UnprovenError if bounded sizes may differ."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_broadcast_size(sizes) for sizes in zip(*padded, strict=True))


def _broadcast_size(sizes: Sequence[Size]) -> Size:
    others = {size for size in sizes if size != 1}
    if not others:
        return 1
    if has_symbol(others) and len(others) > 1:
        raise UnprovenError(DIFFER)
    return others.pop() if len(others) == 1 else next((n for n in others if n is not None), None)


def same(sizes: Sequence[Size]) -> Size:
    """Return the one size that all must equal; an UnprovenError if a bounded one may differ."""
    if len(set(sizes)) == 1:
        return sizes[0]
    if has_symbol(sizes):
        raise UnprovenError(DIFFER)
    return next((size for size in sizes if size is not None), None)


def join(
    tensors: Sequence[Tensor], symbol: Callable[[int], Symbol], bounds: bool = False
) -> Tensor:
    """Join the facts about a value after a branch; an UnprovenError if only one side is bounded.

    XLA `bounds` the size of a result of branches with different ones.
    """
    tainted = any(tensor.tainted for tensor in tensors)
    sources = frozenset[Source]().union(*(tensor.sources for tensor in tensors))
    shapes = [tensor.shape for tensor in tensors]
    shape: Any = None
    if all(one is not None and len(one) == len(shapes[0] or ()) for one in shapes):
        columns = zip(*(one for one in shapes if one is not None), strict=True)
        try:
            shape = tuple(_join_sizes(c, symbol, dim, bounds) for dim, c in enumerate(columns))
        except UnprovenError as error:
            raise UnprovenError(str(error), sources) from None
    contents = _join_contents([tensor.contents for tensor in tensors])
    varies = any(tensor.varies for tensor in tensors)
    return Tensor(shape, contents, tainted, sources, varies)


def _join_sizes(
    sizes: Sequence[Size], symbol: Callable[[int], Symbol], dim: int, bounds: bool
) -> Size:
    if len(set(sizes)) == 1:
        return sizes[0]
    numbers = [size for size in sizes if isinstance(size, int)]
    if len(numbers) == len(sizes) and bounds:
        return dataclasses.replace(symbol(dim), bound=max(numbers))
    if not has_symbol(sizes):
        return None
    largest = [size.bound for size in sizes if isinstance(size, Symbol)]
    if len(largest) < len(sizes):
        raise UnprovenError("it gives a size that is bounded in one case and fixed in another")
    if len(set(largest)) > 1:
        return symbol(dim)
    return dataclasses.replace(symbol(dim), bound=largest[0])


def _join_contents(contents: Sequence[Shape | None]) -> Shape | None:
    first = contents[0]
    if first is None or any(other is None or len(other) != len(first) for other in contents):
        return None
    columns = [*zip(*(other for other in contents if other is not None), strict=True)]
    if any(has_symbol(column) and len(set(column)) > 1 for column in columns):
        return None
    return tuple(column[0] if len(set(column)) == 1 else None for column in columns)


_SHAPES = "_output_shapes"
_INTEGERS = (tf.int32, tf.int64)
_DTYPES_WITHOUT_SHAPE = (tf.resource, tf.variant)


def argument_shapes(function: FunctionDef) -> list[Shape | None]:
    """Return the shapes that a FunctionDef notes for its arguments."""
    found = []
    for index, argument in enumerate(function.signature.input_arg):
        attributes = function.arg_attr[index].attr if index in function.arg_attr else {}
        known = attributes[_SHAPES].list.shape if _SHAPES in attributes else []
        dtype = tf.as_dtype(argument.type)
        without = dtype in _DTYPES_WITHOUT_SHAPE or not known
        found.append(None if without else sizes_of(tf.TensorShape(known[0])))
    return found


def sizes_of(shape: tf.TensorShape) -> Shape | None:
    """Return the sizes of a TensorShape, or None if its rank is not known."""
    return None if shape.rank is None else tuple(shape.as_list())


def without_symbols(shape: Shape | None) -> Shape | None:
    """Return a shape with None in the place of symbols."""
    return shape and tuple(size if isinstance(size, int) else None for size in shape)


class Inferred:
    """A function as a graph in which TensorFlow has inferred shapes from those of the arguments."""

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
        except ValueError:  # TensorFlow reports the error itself
            self._graph = tf.Graph()

    def shape(self, node: str, index: int) -> Shape | None:
        """Return the shape of a node's result, as TensorFlow knows it."""
        tensor = self._tensor(node, index)
        return None if tensor is None else sizes_of(tensor.shape)

    def shapes(self, node: str) -> list[Shape | None]:
        """Return the shapes of all results of a node."""
        return [self.shape(node, index) for index in range(self.count(node))]

    def contents(self, node: str, index: int) -> Shape | None:
        """Return the elements of a result that may give sizes, with None for unknown ones."""
        tensor = self._tensor(node, index)
        if tensor is None or tensor.dtype not in _INTEGERS or tensor.shape.rank not in (0, 1):
            return None
        count = tensor.shape.num_elements()
        if count is None or count > LONGEST:
            return None
        value = tf.get_static_value(tensor)
        return (None,) * count if value is None else tuple(int(n) for n in value.flatten())

    def count(self, node: str) -> int:
        """Return the number of a node's results."""
        return sum(len(types) for types in self._types.of_node(node).values())

    def position(self, value: str) -> tuple[str, int]:
        """Return the node or argument that an input comes from, and the number of the result."""
        name, _, result = value.partition(":")
        if name in self._arguments:
            return name, 0
        return name, self._types.position(name, result)

    def _tensor(self, node: str, index: int) -> tf.Tensor | None:
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
        """Return a node's copy in the graph, or placeholders if the graph cannot hold it."""
        if self._is_opaque(node):
            types = self._types.results_of(node.name).values()
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


def _placeholder(name: str, dtype: int, shape: Shape | None) -> NodeDef:
    node: NodeDef = protos.node_def_pb2.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(without_symbols(shape)).as_proto())
    return node
