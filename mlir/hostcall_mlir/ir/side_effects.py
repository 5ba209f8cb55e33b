"""Which ops do more than compute their results, and dropping the others where nobody uses those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import address

# What does something beside computing its results, or waits for other devices to do the same.
_EFFECTS = {
    "stablehlo.all_gather",
    "stablehlo.all_reduce",
    "stablehlo.all_to_all",
    "stablehlo.collective_broadcast",
    "stablehlo.collective_permute",
    "stablehlo.infeed",
    "stablehlo.outfeed",
    "stablehlo.recv",
    "stablehlo.reduce_scatter",
    "stablehlo.send",
}
_PURE_DIALECTS = {"chlo", "stablehlo"}
_TERMINATORS = {"func.return", "stablehlo.return"}


def callee_of(op: ir.Operation) -> str | None:
    """The name of the function that a func.call calls, None for other ops."""
    if op.name != "func.call":
        return None
    name: str = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    return name


def functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name, in its order."""
    ops = (op.operation for op in module.body)
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op for op in ops if op.name == "func.func"
    }


def reaching(bodies: Mapping[str, Sequence[ir.Operation]], found: Iterable[str]) -> set[str]:
    """The functions that are in `found` or call one that is, directly or not.

    Args:
      bodies: the ops of each function.
      found: names.
    """
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


def drop_unused(module: ir.Module) -> None:
    """Drops the ops of all functions that only compute what nobody uses."""
    bodies = {name: custom_calls.walk(op)[1:] for name, op in functions(module).items()}
    own = [name for name, ops in bodies.items() if not ops or any(map(_has_own_effect, ops))]
    effectful = reaching(bodies, own)
    for ops in bodies.values():
        kept: set[int] = set()  # what has effects, or holds an op that has some
        # Backwards, users come before what they use, and regions before the op that they are of.
        for op in reversed(ops):
            if address(op) in kept or _has_own_effect(op) or callee_of(op) in effectful:
                kept.add(address(op.parent.operation))
            elif op.name not in _TERMINATORS and not any(_is_used(value) for value in op.results):
                op.erase()


def _has_own_effect(op: ir.Operation) -> bool:
    if op.name in _TERMINATORS or callee_of(op) is not None:
        return False
    if op.name == "stablehlo.custom_call":
        return custom_calls.has_side_effect(op)
    return op.name.split(".")[0] not in _PURE_DIALECTS or op.name in _EFFECTS


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
