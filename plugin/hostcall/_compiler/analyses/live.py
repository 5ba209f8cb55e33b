"""Which nodes TensorFlow leaves of a program before XLA compiles it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from hostcall._compiler.analyses.varying import VaryingValues
from hostcall._tf.graph import attributes, op_kinds
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FunctionDef, Functions, NodeDef

_Needed: TypeAlias = tuple[str, str]  # a function, and a value or a control edge in it

# XLA compiles only the branch that is taken, if it knows the branch.
_PRUNED = frozenset({"Case", "StatelessCase"})


class LiveNodes:
    """The nodes that remain of some functions after calls are inlined, less the unneeded ones."""

    def __init__(self, functions: Functions, varying: VaryingValues, entry: str) -> None:
        self._functions = functions
        self._varying = varying
        self._nodes = {name: {n.name: n for n in f.node_def} for name, f in functions.items()}
        self._live: set[tuple[str, str]] = set()  # nodes and arguments
        self._calls: dict[str, list[tuple[str, NodeDef]]] = defaultdict(list)
        for _ in reach(self._enter(entry, whole=True), self._follow):
            pass

    def includes(self, function: str, node: str) -> bool:
        """Return whether a node remains, by the name of its function and its own."""
        return (function, node) in self._live

    def _enter(self, name: str, whole: bool) -> Iterator[_Needed]:
        """Yield what a function needs, compiled by itself, or inlined and needed for effects."""
        if (function := self._functions.get(name)) is None:
            return
        for node in _roots(function, self._functions):
            yield name, f"^{node}"
        for value in [*function.ret.values(), *_ends(function)] if whole else ():
            yield name, value

    def _follow(self, needed: _Needed) -> Iterator[_Needed]:
        """Note a needed value or, for a control edge, that a node runs; yield what it needs."""
        function, value = needed
        name = defs.source(value)
        is_new = (function, name) not in self._live
        self._live.add((function, name))
        node = self._nodes[function].get(name)
        if node is None:
            for caller, call in self._calls[function] if is_new else ():
                yield from self._argument(caller, call, function, name)
        elif called := self._inlined(node):
            yield from self._follow_call(function, node, called, value, is_new)
        elif is_new:
            yield from ((function, operand) for operand in node.input)
            for callee in self._compiled_with(function, node):
                yield from self._enter(callee, whole=True)

    def _inlined(self, node: NodeDef) -> str:
        """Return the name of the function that is inlined for a node, or ""."""
        if node.op in self._functions:
            return node.op
        name = node.attr["f"].func.name if node.op in op_kinds.CALL_OPS else ""
        return name if name in self._functions else ""

    def _compiled_with(self, function: str, node: NodeDef) -> list[str]:
        """Return the functions that are compiled with an op, each by itself."""
        if node.op in _PRUNED and not self._varying.includes(function, node.input[0]):
            return []
        return defs.called_functions(node, self._functions)

    def _follow_call(
        self, function: str, node: NodeDef, called: str, value: str, is_new: bool
    ) -> Iterator[_Needed]:
        if is_new:
            self._calls[called].append((function, node))
            yield from ((function, v) for v in node.input if v[0] == "^")
            yield from self._enter(called, whole=False)
            for argument in self._functions[called].signature.input_arg:
                if (called, argument.name) in self._live:
                    yield from self._argument(function, node, called, argument.name)
        if value[0] != "^":
            callee = self._functions[called]
            types = defs.output_types(node, self._functions)
            index = defs.position_in(types, value.partition(":")[2])
            results = [callee.ret[r.name] for r in callee.signature.output_arg]
            yield from ((called, result) for result in results[index : index + 1])

    def _argument(self, caller: str, call: NodeDef, callee: str, name: str) -> Iterator[_Needed]:
        """Yield the operand that a call needs for one argument, given by the argument's name."""
        arguments = self._functions[callee].signature.input_arg
        pairs = zip(arguments, defs.data_inputs(call), strict=False)
        yield from ((caller, value) for argument, value in pairs if argument.name == name)


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
