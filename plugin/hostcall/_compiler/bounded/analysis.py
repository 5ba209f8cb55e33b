"""What hinders script ops with results of bounded size from being part of one program.

Each such result may reach ops that are not known to be right with bounded sizes
(`flow.py`). Where one does, the script op is marked: it runs on the host, so that the size
is known to XLA; or, where the user wants it in the program whatever happens, that is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._compiler import route_selection
from hostcall._compiler.bounded import callback_sizes, replaced_ops
from hostcall._compiler.bounded.flow import DYNAMIC_OPS, Flow, Offence
from hostcall._compiler.bounded.sizes import Shape, Source, Symbol, Tensor
from hostcall._tf import (
    attributes,
    graph_ownership,
    op_kinds,
    op_locations,
    protos,
    script_op_graphs,
)
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary, Functions, Graph, NodeDef
from hostcall_runtime import _library


def marked(library: FunctionDefLibrary, entry: str, whole: bool = False) -> Any:
    """A FunctionDefLibrary whose script ops say what hinders them, and go by it.

    Args:
      library: a FunctionDefLibrary, which is left alone.
      entry: the function that is going to be compiled.
      whole: whether nothing of it can be on the host.

    Returns:
      A copy.
    """
    copy = protos.function_pb2.FunctionDefLibrary()
    copy.CopyFrom(library)
    search = _Search(copy, entry, _nothing if whole else route_selection.is_on_host)
    search.run()
    for function in copy.function:
        # Those that are hindered are script ops, too.
        for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
            source = (function.signature.name, node.name)
            if source in search.hindered:
                node.attr[attributes.HINDERED].s = search.hindered[source].encode()
            else:
                dims = sorted(search.bounded.get(source, ()))
                numbers = protos.integer_list([n for pair in dims for n in pair])
                node.attr[attributes.FORESEEN].list.CopyFrom(numbers)
    return copy


def find(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """What hinders script ops from being part of one program, by the names of function and op.

    Args:
      library: a FunctionDefLibrary.
      entry: the function that is going to be compiled, as a whole.
    """
    copy = protos.function_pb2.FunctionDefLibrary()
    copy.CopyFrom(library)
    search = _Search(copy, entry, _nothing)
    search.run()
    return search.hindered


class _Search:
    """What there is to know of the script ops in a program.

    Args:
      library: a FunctionDefLibrary; ops in it that XLA gets wrong are written in others.
      entry: the function that is going to be compiled.
      is_on_host: whether a script op is not, by its NodeDef.

    Attributes:
      hindered: what hinders script ops, in words.
      bounded: of the others, the (result, dimension)s whose size may be bounded.
    """

    def __init__(
        self, library: FunctionDefLibrary, entry: str, is_on_host: Callable[[Any], bool]
    ) -> None:
        self._functions = _reachable(library, entry)
        self._entry = entry
        self._is_on_host = is_on_host
        self.hindered: dict[Source, str] = {}
        self.bounded: Mapping[Source, set[tuple[int, int]]] = {}

    def run(self) -> None:
        """Fills in the attributes."""
        if not self._any_may_be_bounded():
            return
        replaced_ops.spell_out(self._functions.values())
        while self._any_may_be_bounded():
            flow = Flow(self._functions, self._results, _constant_operands)
            flow.run(self._entry)
            self.bounded = flow.bounded
            if not flow.offences:
                break
            # The results of these have sizes that XLA knows: there may be more to say of others.
            for offence in flow.offences.values():
                for source in sorted(offence.sources):
                    for tied in self._tied_to(source):
                        reason = _reason(offence, self._functions, source)
                        self.hindered.setdefault(tied, reason)

    def _tied_to(self, source: Source) -> list[Source]:
        """A script op with those that it shares tape residuals with, for gradients."""
        nodes = {(name, n.name): n for name, f in self._functions.items() for n in f.node_def}
        root = _root(nodes[source])
        others = [s for s, n in nodes.items() if root is not None and _root(n) is root]
        return [source, *others]

    def _results(self, source: Source, node: NodeDef, *rest: Any) -> list[Shape | None] | None:
        on_host = source in self.hindered or self._is_on_host(node)
        return None if on_host else callback_sizes.results(node, *rest)

    def _any_may_be_bounded(self) -> bool:
        """Whether a script op has a result of bounded size, for what it takes or might take."""
        script_ops: list[tuple[str, Any]] = []
        tainted = False
        for name, function in self._functions.items():
            for node in function.node_def:
                op = node.op  # asked once: it takes as long as all else here
                if op in op_kinds.SCRIPT_OPS:
                    script_ops.append((name, node))
                tainted = tainted or op in DYNAMIC_OPS
        taken = Tensor(tainted=tainted)
        for name, node in script_ops:
            operands = [taken] * len(node.attr["Tin"].list.type)
            if self._results((name, node.name), node, operands, _any_symbol) is not None:
                return True
        return False


def _root(node: NodeDef) -> Any:
    """The spec of the call that a script op is, or is a gradient of, if it has tape residuals."""
    if node.op != "EagerPyFunc":
        return None
    spec = lookup.unchecked_entry_of(node)
    return spec.root if isinstance(spec, EagerSpec) else None


def _nothing(_: Any) -> bool:
    return False


def _any_symbol(result: int, dim: int, bound: int | None) -> Symbol:
    return Symbol(("", result, dim), bound)


def _constant_operands(node: NodeDef) -> list[int]:
    bindings = _library.load("hostcall._tensorflow")
    operands: list[int] = bindings.constant_operands(node.SerializeToString())
    return operands


def _reachable(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    functions = {function.signature.name: function for function in library.function}
    found: dict[str, Any] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in functions and name not in found:
            found[name] = functions[name]
            for node in defs.calls_in(functions[name], functions):
                pending.extend(defs.called_functions(node, functions))
    return found


def _reason(offence: Offence, functions: Functions, source: Source) -> str:
    node = next(n for n in functions[source[0]].node_def if n.name == source[1])
    place = _place(offence, node)
    where = f" at {place}" if place else ""
    return (
        f"a size of its results is only bounded and reaches op '{offence.node}' ({offence.op})"
        f"{where}, which XLA may get wrong: {offence.reason}"
    )


def _place(offence: Offence, script_op: NodeDef) -> str:
    """`file:line` of an op that a script op leads to, or ""."""
    spec = lookup.unchecked_entry_of(script_op)
    op = spec.op() if isinstance(spec, CallbackSpec) and spec.op is not None else None
    if op is None:
        return ""
    for graph in _graphs_around(op.graph, offence.function):
        for name in _names(offence.node):
            with contextlib.suppress(KeyError, ValueError):
                found = graph.get_operation_by_name(name)
                if found.type == offence.op:
                    return op_locations.of_op(found)
    return ""


def _graphs_around(graph: Graph, function: str) -> Iterator[Any]:
    """The graphs that a function may have been traced as, the likeliest one first."""
    graphs = script_op_graphs.graphs_of(graph_ownership.outermost(graph))
    if function in graphs:
        yield graphs[function]
    yield graph
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
        yield graph
        yield from script_op_graphs.graphs_of(graph).values()


def _names(node: str) -> Iterator[str]:
    """The names that a node may have had before it became part of a FunctionDef."""
    yield node
    stem, _, number = node.rpartition("_")
    if number.isdigit():
        yield stem
