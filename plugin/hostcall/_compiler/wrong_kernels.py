"""Ops that XLA computes differently from TensorFlow: what a node has of it, and its replacement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hostcall._compiler.analyses.sizes import Source
from hostcall._compiler.ops import DIFFERENT, FOR_HOST, OPS, Difference
from hostcall._compiler.semantics import values
from hostcall._compiler.semantics.conditions import Nodes
from hostcall._compiler.semantics.values import Writer
from hostcall._ops import settings
from hostcall._tf.graph import attributes
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.function_edits import FunctionEdits
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef

_WRONG = "XLA computes something else than TensorFlow: {reason}"

# Writes what replaces a node, and returns its results.
_Write = Callable[[Writer], str | tuple[str, ...]]


def difference(node: NodeDef, nodes: Nodes, of_graph: bool = True) -> Difference | None:
    """Return the difference of XLA's kernel for a node of a function with some `nodes`."""
    # Without `of_graph`, only what XLA gets plainly wrong counts, whatever the user's settings.
    row = OPS.get(node.op)
    of_graph = of_graph and settings.current.semantics == settings.GRAPH
    for found in row.differences if row is not None else ():
        if (of_graph or not found.of_graph) and found.applies(node, nodes):
            return found
    return None


def _differing(
    functions: Iterable[FunctionDef], kinds: Collection[str], of_graph: bool = True
) -> Iterator[tuple[NodeDef, FunctionDef, Difference]]:
    """Yield the nodes of some kinds that XLA computes differently, with their functions."""
    for function in functions:
        found = defs.nodes_of(function, kinds)
        nodes = {node.name: node for node in function.node_def} if found else {}
        for node in found:
            if (one := difference(node, nodes, of_graph)) is not None:
                yield node, function, one


def for_host(
    functions: Iterable[FunctionDef], of_graph: bool = True
) -> Iterator[tuple[NodeDef, FunctionDef, str]]:
    """Yield the nodes that go to the host, with their functions and the reasons."""
    for node, function, one in _differing(functions, FOR_HOST, of_graph):
        if one.replacement is None:
            yield node, function, one.reason


def mark(library: FunctionDefLibrary, of_graph: bool) -> None:
    """Mark the nodes that go to the host, with the reasons, in place."""
    for node, _, reason in for_host(library.function, of_graph):
        node.attr[attributes.WRONG].s = _WRONG.format(reason=reason).encode()


def find_risks(functions: Functions) -> dict[Source, str]:
    """Find the nodes that XLA computes differently as they stand, with the reasons."""
    return {
        (function.signature.name, node.name): _WRONG.format(reason=one.reason)
        for node, function, one in _differing(functions.values(), DIFFERENT)
    }


def replace(functions: Functions, of_graph: bool = True) -> set[str]:
    """Replace the ops that XLA computes differently; return the names of the changed functions."""

    def replacement(node: NodeDef, nodes: Nodes) -> _Write | None:
        found = difference(node, nodes, of_graph)
        return found.replacement if found is not None else None

    return _replace(functions, dict.fromkeys(DIFFERENT, replacement))


def replace_ones_like(functions: Functions) -> set[str]:
    """Replace `OnesLike` by ops that respect bounded sizes: see `replace`."""
    # XLA fills the padding with ones, too, and makes the bound the size of the result. The
    # replacement is one where zero equals zero, which has the true size.
    return _replace(functions, {"OnesLike": lambda _node, _nodes: values.ones_like})


def _replace(
    functions: Functions, table: Mapping[str, Callable[[NodeDef, Nodes], _Write | None]]
) -> set[str]:
    changed = set()
    for name, function in functions.items():
        if not (found := defs.nodes_of(function, table)):
            continue
        nodes = {node.name: node for node in function.node_def}
        edits = FunctionEdits(function)
        for node in found:
            if (write := table[node.op](node, nodes)) is not None:
                _put(edits, Writer(node, nodes), write)
        if edits.write():
            changed.add(name)
    return changed


def _put(edits: FunctionEdits, writer: Writer, write: _Write) -> None:
    """Put the replacement in front of a node, which passes it on under its old name."""
    node = writer.node
    written = write(writer)
    results = (written,) if isinstance(written, str) else written
    replaced = defs.results_of(node, {})
    types = [*replaced.values()]
    controls = [value for value in node.input if value.startswith("^")]
    edits.before(node.name, writer.nodes)
    for i, value in enumerate(replaced):
        edits.change(value, f"{node.name}:output:{i}")
    node.attr.clear()
    node.op = "Identity" if len(types) == 1 else "IdentityN"
    if len(types) == 1:
        node.attr["T"].type = types[0]
    else:
        node.attr["T"].list.type.extend(types)
    node.input[:] = [*results, *controls]
