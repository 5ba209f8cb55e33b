"""Labels of functions, steps and values, in tables and on pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from rich import filesize

from hostcall._tools.explain.facts import (
    FunctionFacts,
    HostOp,
    OpFacts,
    Risk,
    ScriptOp,
    Step,
    ValueFacts,
)

_PLUMBING = frozenset({"Const", "Identity", "IdentityN", "NoOp"})
_CONTROL_FLOW = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})


def short_name(function: str) -> str:
    """Return the user's name for a function, recovered from the name that TensorFlow gave it."""
    return re.sub(r"^__(?:inference|forward|backward)_(.+?)(?:_\d+)?$", r"\1", function)


def summary(ops: Iterable[OpFacts]) -> str:
    """Return the types of ops in the order of their first appearance, with the count of each."""
    counts = Counter(op.op for op in working(ops))
    return ", ".join(f"{n} {op}" if n > 1 else op for op, n in counts.items()) or "nothing"


def working(ops: Iterable[OpFacts]) -> list[OpFacts]:
    """Return the ops that do work: all but constants, identities and no-ops."""
    return [op for op in ops if op.op not in _PLUMBING]


_ROLES = {
    "cond": "the condition of the loop",
    "body": "the body of the loop",
    "then_branch": "where it is true",
    "else_branch": "where it is false",
}


def title(function: FunctionFacts) -> str:
    """Return the name of a function, where it is called, and how it runs."""
    where = f" ({function.path})" if function.path else ""
    return f"{short_name(function.name)}{where}: {function.mode}"


def role_of(path: str) -> str:
    """Return the role that the last step of a path names."""
    name = path.rpartition(" > ")[2].rpartition(":")[2]
    return _ROLES.get(name) or name.replace("branches[", "branch [")


def parts_of(step: Step, functions: Mapping[str, FunctionFacts]) -> list[FunctionFacts]:
    """Return the functions worth showing that a loop or branch on the host runs."""
    if not isinstance(step, HostOp) or step.op not in _CONTROL_FLOW:
        return []
    found = (functions[name] for name in step.calls if name in functions)
    return sorted(filter(worth_showing, found), key=lambda function: rank(function.path))


def rank(path: str) -> int:
    """Return a sort key: the condition before the body, the true branch before the others."""
    name = path.rpartition(":")[2]
    return [*_ROLES].index(name) if name in _ROLES else len(_ROLES)


def is_plumbing(step: Step) -> bool:
    """Return whether a step is a constant, an identity or a no-op."""
    return isinstance(step, HostOp) and step.op in _PLUMBING


def worth_showing(function: FunctionFacts) -> bool:
    """Return whether a function has a step that does work."""
    return not all(map(is_plumbing, function.steps))


def joined(path: str, name: str) -> str:
    """Return a path with one more step."""
    return f"{path} > {name}" if path else name


def name_of(step: ScriptOp | HostOp | Risk) -> str:
    """Return the shown name of an op on the host: its Python function, or its type."""
    return callback(step) if isinstance(step, ScriptOp) else step.op


def callback(op: ScriptOp) -> str:
    """Return the name of the Python function, without the functions around it."""
    return op.callback.rpartition("<locals>.")[2] or "a function that is not here"


def shapes(op: ScriptOp) -> str:
    """Return the operands and the results of a script op as text."""
    operands = ", ".join(map(type_of, op.operands)) or "none"
    results = ", ".join(map(_result, op.results)) or "none"
    return f"{operands} → {results}"


def type_of(value: ValueFacts) -> str:
    """Return the dtype and the shape of a value as text."""
    return f"{value.dtype} {value.shape}"


def _result(value: ValueFacts) -> str:
    if value.known == "shape_function":
        return f"{type_of(value)} (its shape function tells it)"
    unknown = value.known == "unknown" and value.shape != "<unknown>"
    return f"{type_of(value)}{' (unknown)' if unknown else ''}"


def size(count: int | None) -> str:
    """Return a number of bytes in readable units, or "?" if it is not known."""
    if count is None:
        return "?"
    unit, name = filesize.pick_unit_and_suffix(count, ["B", "KiB", "MiB", "GiB"], 1024)
    return f"{count} B" if unit == 1 else f"{count / unit:.1f} {name}"
