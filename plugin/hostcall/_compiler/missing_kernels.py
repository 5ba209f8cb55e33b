"""Ops that XLA has no kernel for, found before it compiles the function.

TensorFlow looks for kernels after it has inlined calls, dropped their unneeded nodes, and folded
constants. So an op counts here only if it survives these steps: its result is needed, and may
differ from call to call. Doubtful ops are left for XLA to refuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hostcall._compiler.partition.host_ops import VaryingValues
from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef

# Ops that TensorFlow compiles without a kernel.
_WITHOUT_KERNELS = defs.FRAME_OPS | {"SymbolicGradient"}

# XLA compiles only the branch that is taken, if it knows the branch.
_PRUNED = frozenset({"Case", "StatelessCase"})


class MissingKernel(NamedTuple):
    """A node that XLA has no kernel for: the names of its function and of itself, and its op."""

    function: str
    node: str
    op: str


def find(library: FunctionDefLibrary, entry: str, device_type: str) -> list[MissingKernel]:
    """Find nodes for which XLA is certain to refuse a function on a type of device."""
    functions = defs.reachable(library, entry)
    lacking = {
        name: [n for n in function.node_def if _lacks_kernel(n, functions, device_type)]
        for name, function in functions.items()
    }
    if not any(lacking.values()):
        return []
    stateful = [n for n in lacking[entry] if defs.definition_of(n, functions).is_stateful]
    if stateful:  # these are never dropped or folded; a search for more would cost time
        return [MissingKernel(entry, node.name, node.op) for node in stateful]
    varying = VaryingValues(functions)
    live = _LiveNodes(functions, varying, entry)
    return [
        MissingKernel(name, node.name, node.op)
        for name, nodes in lacking.items()
        for node in nodes
        if live.includes(name, node.name) and varying.includes(name, node.name)
    ]


def _lacks_kernel(node: NodeDef, functions: Functions, device_type: str) -> bool:
    if node.op in functions or node.op in _WITHOUT_KERNELS or attributes.REPLACED in node.attr:
        return False
    return not op_kinds.has_xla_kernel(node, device_type)


class _LiveNodes:
    """The nodes that remain of some functions after calls are inlined.

    Unneeded nodes of an inlined call are dropped; those of a function compiled by itself are kept.
    """

    def __init__(self, functions: Functions, varying: VaryingValues, entry: str) -> None:
        self._functions = functions
        self._varying = varying
        self._nodes = {name: {n.name: n for n in f.node_def} for name, f in functions.items()}
        self._live: set[tuple[str, str]] = set()  # nodes and arguments
        self._needed: set[tuple[str, str]] = set()  # values
        self._calls: dict[str, list[tuple[str, NodeDef]]] = defaultdict(list)
        self._pending: list[tuple[str, str]] = []
        self._enter(entry, whole=True)
        while self._pending:
            self._follow(*self._pending.pop())

    def includes(self, function: str, node: str) -> bool:
        """Return whether a node remains, by the name of its function and its own."""
        return (function, node) in self._live

    def _enter(self, name: str, whole: bool) -> None:
        """Note that a function is compiled by itself, or inlined and so far needed for effects."""
        if (function := self._functions.get(name)) is None:
            return
        self._need(name, [f"^{node}" for node in _roots(function, self._functions)])
        if whole:
            self._need(name, [*function.ret.values(), *_ends(function)])

    def _need(self, function: str, values: Iterable[str]) -> None:
        new = {(function, value): None for value in values}.keys() - self._needed
        self._needed |= new
        self._pending += new

    def _follow(self, function: str, value: str) -> None:
        """Note that a value is needed or, for a control edge, that a node runs."""
        name = defs.source(value)
        is_new = (function, name) not in self._live
        self._live.add((function, name))
        node = self._nodes[function].get(name)
        if node is None:
            for caller, call in self._calls[function] if is_new else ():
                self._need_argument(caller, call, function, name)
        elif called := self._inlined(node):
            self._follow_call(function, node, called, value, is_new)
        elif is_new:
            self._need(function, node.input)
            for callee in self._compiled_with(function, node):
                self._enter(callee, whole=True)

    def _inlined(self, node: NodeDef) -> str:
        """Return the name of the function that is inlined for a node, or ""."""
        if node.op in self._functions:
            return node.op
        name = node.attr["f"].func.name if node.op in defs.CALL_OPS else ""
        return name if name in self._functions else ""

    def _compiled_with(self, function: str, node: NodeDef) -> list[str]:
        """Return the functions that are compiled with an op, each by itself."""
        if node.op in _PRUNED and not self._varying.includes(function, node.input[0]):
            return []
        return defs.called_functions(node, self._functions)

    def _follow_call(
        self, function: str, node: NodeDef, called: str, value: str, is_new: bool
    ) -> None:
        if is_new:
            self._calls[called].append((function, node))
            self._need(function, [v for v in node.input if v[0] == "^"])
            self._enter(called, whole=False)
            for argument in self._functions[called].signature.input_arg:
                if (called, argument.name) in self._live:
                    self._need_argument(function, node, called, argument.name)
        if value[0] != "^":
            callee = self._functions[called]
            types = defs.output_types(node, self._functions)
            index = defs.position_in(types, value.partition(":")[2])
            results = [callee.ret[r.name] for r in callee.signature.output_arg]
            self._need(called, results[index : index + 1])

    def _need_argument(self, caller: str, call: NodeDef, callee: str, name: str) -> None:
        """Note that a call needs its operand for one argument, given by the argument's name."""
        arguments = self._functions[callee].signature.input_arg
        index = next((i for i, a in enumerate(arguments) if a.name == name), len(arguments))
        data = [value for value in call.input if value[0] != "^"]
        self._need(caller, data[index : index + 1])


def _roots(function: FunctionDef, functions: Functions) -> Iterator[str]:
    """Yield the nodes of a function that run even if its results are not needed."""
    yield from function.control_ret.values()
    for node in function.node_def:
        if attributes.REPLACED not in node.attr and defs.definition_of(node, functions).is_stateful:
            yield node.name


def _ends(function: FunctionDef) -> Iterator[str]:
    """Yield control edges of the nodes without users; a graph is taken to need them."""
    waited_for = {defs.source(value) for node in function.node_def for value in node.input}
    for node in function.node_def:
        if attributes.REPLACED not in node.attr and node.name not in waited_for:
            yield f"^{node.name}"
