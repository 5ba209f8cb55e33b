"""Traversals of ops: the nesting depth that MLIR can read, side effects, and dead code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import Diagnostic, Failure, report
from hostcall_mlir.ir.jaxlib_names import address, attribute_of

# The limit on nested brackets. With the usual stack of 8 MiB, MLIR ends the process at about 4000.
_BRACKETS = 1000

OPS = 500  # the limit on nested ops, each of which takes one bracket or more in a text

# The limit on nested ops in a partitioned program, whose regions Python runs by recursion.
SPLIT_OPS = 100

_BYTECODE = b"ML\xefR"
_OPENING, _CLOSING = b"([{<", b")]}>"
_OTHERS = bytes({*range(256)} - {*_OPENING, *_CLOSING})

# The tokens for counting brackets; those in strings, comments and arrows do not count. A line that
# defines a name gives it a value: each use of the name counts the value's brackets.
_TOKEN = re.compile(
    rb"""(?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*|->|[<>]=)
       | ^[ \t]*(?P<defined>[\#!][\w$-][\w$.-]*)[ \t]*=(?!=)
       | (?P<used>[\#!][\w$-]+)
       | (?P<bracket>[()\[\]{}<>])
       | (?P<end>\n)""",
    re.VERBOSE | re.MULTILINE,
)


def problem_of_text(text: str | bytes) -> Diagnostic | None:
    """Return the error of a text, not bytecode, that is nested too deep to be read by recursion."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    is_deep = not data.startswith(_BYTECODE) and _may_be_deep(data)
    if not is_deep or (position := _first_too_deep(data)) is None:
        return None
    line = data.count(b"\n", 0, position) + 1
    column = position - data.rfind(b"\n", 0, position)
    return Diagnostic("error", "", line, column, _too_deep("brackets", _BRACKETS))


def check_ops(module: ir.Module, most: int = OPS) -> None:
    """Report an op that is nested in more than `most` others, and raise Failure."""
    ops = custom_calls.walk(module)
    for op, depth in zip(ops, depths_of(ops), strict=True):
        if depth > most:
            report(op, _too_deep("ops", most))
            raise Failure


def depths_of(ops: Sequence[ir.Operation]) -> list[int]:
    """Return for each op in how many of the others it is nested; outer ops must come first."""
    depths: dict[int, int] = {}
    for op in ops:
        parent = op.parent
        depths[address(op)] = depths.get(address(parent.operation), -1) + 1 if parent else 0
    return [*depths.values()]


def _too_deep(what: str, most: int) -> str:
    return (
        f"the program is nested deeper than {most} {what} in {what}, the most that is taken here: "
        "deeper ones end the process when its stack ends. Move inner parts to functions, and call "
        "those"
    )


def _may_be_deep(data: bytes) -> bool:
    """Return quickly whether names are too many, or brackets are too deep if all of them count."""
    if data.count(b"\n#") + data.count(b"\n!") > _BRACKETS // 2:
        return True
    brackets = data.replace(b"->", b"").translate(None, _OTHERS)
    steps = np.where(np.isin(np.frombuffer(brackets, np.uint8), [*_OPENING]), 1, -1)
    return int(np.cumsum(steps).max(initial=0)) > _BRACKETS // 2


def _first_too_deep(data: bytes) -> int | None:
    """Return the position where brackets, those of named values included, exceed the limit."""
    depth = 0
    of_names: dict[bytes, int] = {}
    defined: bytes | None = None
    for token in _TOKEN.finditer(data):
        kind = token.lastgroup
        if kind == "text":
            continue
        if kind == "bracket":
            depth = max(depth + 1 if token[0] in _OPENING else depth - 1, 0)
        here = depth
        if kind == "defined":
            defined = token["defined"]
            of_names[defined] = 0
        elif kind == "used":
            here += of_names.get(token[0], 0)
        elif kind == "end" and depth == 0:
            defined = None
        if here > _BRACKETS:
            return token.start()
        if defined is not None:
            of_names[defined] = max(of_names[defined], here)
    return None


# Ops that have a side effect, or that wait for other devices to run the same op.
_NAMES = (
    "all_gather all_reduce all_to_all collective_broadcast collective_permute infeed outfeed recv "
    "reduce_scatter send"
)
_EFFECTS = {f"stablehlo.{name}" for name in _NAMES.split()}
_PURE_DIALECTS = {"chlo", "stablehlo"}
_TERMINATORS = {"func.return", "stablehlo.return"}


def callee_of(op: ir.Operation) -> str | None:
    """Return the name of the function that a func.call calls, None for other ops."""
    if op.name != "func.call":
        return None
    return str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)


def name_of(function: ir.Operation) -> str:
    """Return the name of a function."""
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def type_of(function: ir.Operation) -> ir.FunctionType:
    """Return the type of a function."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def set_type(function: ir.Operation, inputs: Sequence[ir.Type], results: Sequence[ir.Type]) -> None:
    """Set the argument and result types of a function."""
    type_ = ir.FunctionType.get(inputs, results)
    function.attributes["function_type"] = ir.TypeAttr.get(type_)


def is_private(function: ir.Operation) -> bool:
    """Return whether only its own module can call a function."""
    attribute = attribute_of(function, "sym_visibility")
    return attribute is not None and ir.StringAttr(attribute).value == "private"


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Return the functions of a module by name, in its order."""
    ops = (op.operation for op in module.body)
    return {name_of(op): op for op in ops if op.name == "func.func"}


def reaching(bodies: Mapping[str, Sequence[ir.Operation]], found: Iterable[str]) -> set[str]:
    """Return the functions in `found`, and those whose bodies call one of them, directly or not."""
    callers: dict[str, list[str]] = {}
    for name, ops in bodies.items():
        for op in ops:
            if (callee := callee_of(op)) is not None:
                callers.setdefault(callee, []).append(name)
    reached, waiting = set(found), [*found]
    while waiting:
        new = [name for name in callers.get(waiting.pop(), ()) if name not in reached]
        reached.update(new)
        waiting += new
    return reached


def predecessors(ops: Sequence[ir.Operation]) -> list[list[int]]:
    """Return for each op the positions of those whose results it, or an op in it, uses."""
    position = {address(op): i for i, op in enumerate(ops)}
    found = []
    for op in ops:
        owners = (operand.owner for inner in custom_calls.walk(op) for operand in inner.operands)
        keys = {address(owner.operation) for owner in owners if not isinstance(owner, ir.Block)}
        found.append([position[key] for key in keys if key in position])
    return found


def drop_unused(module: ir.Module) -> None:
    """Drop the ops of all functions that have no side effect and no used result."""
    bodies = {name: custom_calls.walk(op)[1:] for name, op in functions(module).items()}
    own = [name for name, ops in bodies.items() if not ops or any(map(_has_own_effect, ops))]
    effectful = reaching(bodies, own)
    for ops in bodies.values():
        kept: set[int] = set()  # the ops that hold an op with a side effect
        # In reverse order, users come before their operands, and inner ops before outer ones.
        for op in reversed(ops):
            if address(op) in kept or _has_own_effect(op) or callee_of(op) in effectful:
                kept.add(address(op.parent.operation))
            elif op.name not in _TERMINATORS and not any(is_used(value) for value in op.results):
                op.erase()


def _has_own_effect(op: ir.Operation) -> bool:
    if op.name in _TERMINATORS or callee_of(op) is not None:
        return False
    if op.name == "stablehlo.custom_call":
        return custom_calls.has_side_effect(op)
    return op.name.split(".")[0] not in _PURE_DIALECTS or op.name in _EFFECTS


def replace(op: ir.Operation, values: Iterable[ir.Value]) -> None:
    """Erase an op, and use other values instead of its results."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def is_used(value: ir.Value) -> bool:
    """Return whether a value has uses."""
    return next(iter(value.uses), None) is not None
