"""Which values of a program may vary between calls with equal shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostcall._compiler.analyses import loops
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.graph.solver import solve
from hostcall._tf.types import NodeDef

_FIXED = op_kinds.SHAPE_OPS | {"Const"}


class VaryingValues:
    """The values that may vary between calls with equal shapes, followed through called ones."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions
        self._types = {name: defs.Types(f, functions) for name, f in functions.items()}
        self._orders = {name: defs.program_order(f) for name, f in functions.items()}
        self._args: dict[str, set[int]] = defaultdict(set)
        self._results: dict[str, set[int]] = defaultdict(set)
        self._values: dict[str, set[str]] = {}
        self._callers: dict[str, set[str]] = defaultdict(set)
        self._changed: dict[str, None] = {}  # by what is followed now
        self._start()
        solve(functions, self._follow)

    def includes(self, function: str, value: str) -> bool:
        """Return whether a value of a function may vary, by its name as an input of nodes."""
        values = self._values[function]
        return value in values or defs.source(value) in values

    def _start(self) -> None:
        for name, function in self._functions.items():
            for node in defs.calls_in(function, self._functions):
                for called in self._called(node):
                    self._callers[called].add(name)
        for name, function in self._functions.items():
            if not self._callers[name]:
                self._args[name].update(range(len(function.signature.input_arg)))

    def _called(self, node: NodeDef) -> list[str]:
        called = defs.called_functions(node, self._functions)
        return [name for name in called if name in self._functions]

    def _follow(self, name: str) -> Iterable[str]:
        """Find the varying values of a function; return the callers and callees that it changes."""
        self._changed = {}
        function = self._functions[name]
        arguments = function.signature.input_arg
        values = self._values[name] = {arguments[i].name for i in self._args[name]}
        for node in self._orders[name]:
            called = self._called(node)
            if called:
                self._follow_call(name, node, called)
            elif self._varies(name, node):
                values.add(node.name)
        outputs = [function.ret[arg.name] for arg in function.signature.output_arg]
        found = {i for i, value in enumerate(outputs) if self.includes(name, value)}
        if not found <= self._results[name]:
            self._results[name] |= found
            self._changed.update(dict.fromkeys(self._callers[name]))
        return self._changed

    def _varies(self, function: str, node: NodeDef) -> bool:
        if node.op in _FIXED:
            return False
        definition = op_kinds.op_def_or_none(node.op)
        if definition is None or definition.is_stateful or node.op in op_kinds.SCRIPT_OPS:
            return True
        return any(self.includes(function, value) for value in defs.data_inputs(node))

    def _follow_call(self, name: str, node: NodeDef, called: Sequence[str]) -> None:
        inputs = [self.includes(name, value) for value in defs.data_inputs(node)]
        if node.op in op_kinds.LOOP_OPS:
            found = self._loop(node, inputs)
        elif node.op in op_kinds.BRANCH_OPS:
            found = self._branches(called, inputs)
        elif node.op in op_kinds.CALL_OPS or node.op in self._functions:
            self._pass(called, _positions(inputs))
            found = {i for callee in called for i in self._results[callee]}
        else:  # an unknown op
            for callee in called:
                self._pass([callee], range(len(self._functions[callee].signature.input_arg)))
            self._values[name].add(node.name)
            return
        results = enumerate(self._types[name].results_of(node.name))
        self._values[name].update(value for i, value in results if i in found)

    def _loop(self, node: NodeDef, inputs: Sequence[bool]) -> set[int]:
        body = node.attr["body"].func.name
        found = {*_positions(inputs), *self._results[body]}
        arguments = self._functions[body].signature.input_arg
        invariants = loops.invariants(self._functions[body])
        # The contents of a list vary if a value that is written to it varies.
        found.update(
            i
            for i, argument in enumerate(arguments)
            if argument.type != defs.VARIANT and i not in invariants
        )
        self._pass([body, node.attr["cond"].func.name], found)
        return found

    def _branches(self, called: Sequence[str], inputs: Sequence[bool]) -> set[int]:
        self._pass(called, _positions(inputs[1:]))
        found = {i for callee in called for i in self._results[callee]}
        if inputs[0]:  # the choice of the branch varies
            results = self._functions[called[0]].signature.output_arg
            found.update(i for i, result in enumerate(results) if result.type != defs.VARIANT)
        return found

    def _pass(self, called: Iterable[str], positions: Iterable[int]) -> None:
        """Note that arguments of functions may vary."""
        for callee in called:
            if callee in self._functions and not set(positions) <= self._args[callee]:
                self._args[callee].update(positions)
                self._changed[callee] = None


def _positions(flags: Iterable[bool]) -> list[int]:
    return [i for i, flag in enumerate(flags) if flag]
