"""Notes on callbacks that refer to variables which the compiled program assigns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hostcall._ops import lookup, used_variables
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import ConcreteFunction, FunctionDef, FunctionDefLibrary
from hostcall._tools.explain.facts import ScriptOp

_ASSIGNS = re.compile(r"Assign(?:Add|Sub)?VariableOp|Resource(?:Apply|Scatter|SparseApply|Strided)")
_BEFORE_ARGUMENTS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}

_SEES_OLD = (
    "{call} refers to the variable {name}, which this function assigns. A compiled program assigns "
    "its variables when it has ended, so that the Python function sees the value from before. Pass "
    "the value as an argument."
)


def notes(
    concrete: ConcreteFunction, library: FunctionDefLibrary, ops: Sequence[ScriptOp]
) -> list[str]:
    """Return a note for each variable that a callback in a compiled program refers to."""
    compiled = {op.node for op in ops if op.route == "custom_call"}
    nodes = [node for node in defs.all_nodes(library, op_kinds.SCRIPT_OPS) if node.name in compiled]
    if not nodes:
        return []
    handles = _assigned(concrete, library)
    found: dict[str, None] = {}
    for node in nodes:
        spec = lookup.own_spec_of(node)
        if spec is not None:
            for name, variable in used_variables.referred_to(spec.function).items():
                if any(variable.handle is handle for handle in handles):
                    found[_SEES_OLD.format(call=spec.description, name=name)] = None
    return [*found]


def _assigned(concrete: ConcreteFunction, library: FunctionDefLibrary) -> list[Any]:
    """Return the handles of the captured variables that a function assigns."""
    captured = list(concrete.captured_inputs)
    first = len(concrete.inputs) - len(captured)
    name = concrete.function_def.signature.name
    numbers = _assigned_arguments(name, defs.by_name(library), {})
    return [captured[number - first] for number in sorted(numbers) if number >= first]


def _assigned_arguments(
    name: str, functions: Mapping[str, FunctionDef], known: dict[str, set[int]]
) -> set[int]:
    """Return the numbers of the arguments that are variables which a function assigns."""
    if name in known:
        return known[name]
    known[name] = set()
    function = functions[name]
    numbers = {arg.name: number for number, arg in enumerate(function.signature.input_arg)}
    for node in defs.program_order(function):
        inputs = defs.data_inputs(node)
        if node.op == "Identity" and inputs[0] in numbers:
            numbers[f"{node.name}:output:0"] = numbers[inputs[0]]
        changed = {0} if _ASSIGNS.match(node.op) else set()
        before = _BEFORE_ARGUMENTS.get(node.op, 0)
        for callee in defs.called_functions(node, functions):
            changed |= {before + i for i in _assigned_arguments(callee, functions, known)}
        known[name] |= {numbers[inputs[i]] for i in changed if inputs[i] in numbers}
    return known[name]
