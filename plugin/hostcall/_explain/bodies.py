"""What explaining asks of FunctionDefs: shapes, the order of effects, who reaches whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

# On nodes and arguments: the shapes that TensorFlow knows, which it writes when asked to.
SHAPES = "_output_shapes"

# The nodes that one has values of, and those that it only runs after.
Edges = tuple[tuple[str, ...], tuple[str, ...]]


class Body:
    """One function, with its nodes in the order of the program."""

    def __init__(self, function: FunctionDef, functions: Mapping[str, Any]) -> None:
        self.nodes = defs.program_order(function)
        self._by_name = {node.name: node for node in function.node_def}
        self._arguments = {arg.name: i for i, arg in enumerate(function.signature.input_arg)}
        self._attributes = function.arg_attr
        self._types = defs.Types(function, functions)

    def node(self, name: str) -> Any:
        """The node of a name."""
        return self._by_name[name]

    def shape_of(self, value: str) -> tf.TensorShape:
        """What TensorFlow knows of the shape of a value: `argument` or `node:result:index`."""
        name, _, result = value.partition(":")
        if name in self._arguments:
            known = self._attributes[self._arguments[name]].attr
            index = 0
        else:
            known = self._by_name[name].attr
            index = self._types.position(name, result)
        shapes = known[SHAPES].list.shape if SHAPES in known else []
        return tf.TensorShape(shapes[index] if index < len(shapes) else None)


class Bodies:
    """The functions of a library.

    Attributes:
      functions: the FunctionDefs by name.
    """

    def __init__(self, library: FunctionDefLibrary) -> None:
        self.functions: dict[str, Any] = {f.signature.name: f for f in library.function}
        self._bodies: dict[str, Body] = {}
        self._matters: dict[str, bool] = {}
        self._effects: dict[str, bool] = {}

    def __getitem__(self, name: str) -> Body:
        if name not in self._bodies:
            self._bodies[name] = Body(self.functions[name], self.functions)
        return self._bodies[name]

    def called(self, node: NodeDef) -> Iterator[tuple[str, str]]:
        """The functions that a node calls: what for ("" for a plain call), and the name."""
        return called(node, self.functions)

    def matters(self, node: NodeDef) -> bool:
        """Whether a node calls Python, or leads to one that does or to a compiled function."""
        if op_kinds.calls_python(node) or defs.is_compiled(node):
            return True
        return any(self.function_matters(name) for _, name in self.called(node))

    def function_matters(self, name: str) -> bool:
        """Whether a function holds such a node."""
        if name not in self._matters:
            self._matters[name] = False  # what a function that calls itself finds
            self._matters[name] = any(map(self.matters, self.functions[name].node_def))
        return self._matters[name]

    def has_effect(self, node: NodeDef) -> bool:
        """Whether a node calls Python in the order of the program, or leads to one that does."""
        if op_kinds.calls_python(node):
            return op_kinds.is_ordered(node)
        return any(self._function_has_effect(name) for _, name in self.called(node))

    def _function_has_effect(self, name: str) -> bool:
        if name not in self._effects:
            self._effects[name] = False
            self._effects[name] = any(map(self.has_effect, self.functions[name].node_def))
        return self._effects[name]


def called(node: NodeDef, functions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Those of the functions that a node calls: what for ("" for a plain call), and the name."""
    if node.op in functions:
        yield "", node.op
    for attr, value in sorted(node.attr.items()):
        if value.HasField("func") and value.func.name in functions:
            yield ("" if attr == "f" else attr), value.func.name
        for index, function in enumerate(value.list.func):
            if function.name in functions:
                yield f"{attr}[{index}]", function.name


def sources(nodes: Iterable[Any], shown: set[str]) -> dict[str, Edges]:
    """What nodes wait for, seen through those of them that are not shown.

    Args:
      nodes: in an order in which they can run.
      shown: the names of those to find.
    """
    waits = []
    for node in nodes:
        values = [defs.source(value) for value in node.input if not value.startswith("^")]
        order = [value[1:] for value in node.input if value.startswith("^")]
        waits.append((node.name, values, order))
    return {
        name: (
            tuple(source for source, is_value in found.items() if is_value),
            tuple(source for source, is_value in found.items() if not is_value),
        )
        for name, found in through(waits, shown).items()
    }


def through(
    waits: Iterable[tuple[str, Iterable[str], Iterable[str]]], shown: set[str]
) -> dict[str, dict[str, bool]]:
    """For each node those of the shown ones that it waits for, whatever is between.

    Args:
      waits: the name of each node, those that it has values of, and those that it runs after, in an
        order in which they can run.
      shown: the names of those to find.

    Returns:
      By name the nodes found, with whether a value comes from there.
    """
    edges: dict[str, dict[str, bool]] = {}
    reached: dict[str, dict[str, bool]] = {}
    for name, values, order in waits:
        found: dict[str, bool] = {}
        for is_value, names in ((True, values), (False, order)):
            for source in names:
                for origin, carries in reached.get(source, {}).items():
                    found[origin] = found.get(origin, False) or (is_value and carries)
        edges[name] = found
        reached[name] = {name: True} if name in shown else found
    return edges
