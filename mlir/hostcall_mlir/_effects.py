"""Which ops may be dropped where nobody uses their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir import _calls

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


class Effects:
    """The effects of a module's ops; calls have those of the functions that they call."""

    def __init__(self, module: ir.Module) -> None:
        bodies = {name: _calls.walk(op)[1:] for name, op in functions(module).items()}
        impure = [name for name, ops in bodies.items() if any(map(_has_own_effect, ops))]
        external = [name for name, ops in bodies.items() if not ops]
        self.bodies: dict[str, list[ir.Operation]] = bodies
        self._impure = reaching(bodies, [*impure, *external])

    def is_droppable(self, op: ir.Operation) -> bool:
        """Whether the op may be dropped, regions aside, where nobody uses its results."""
        return op.name not in _TERMINATORS and self.is_pure(op)

    def is_pure(self, op: ir.Operation) -> bool:
        """Whether the op, regions aside, does nothing but to compute its results."""
        callee = callee_of(op)
        return callee not in self._impure if callee is not None else not _has_own_effect(op)


def _has_own_effect(op: ir.Operation) -> bool:
    if op.name in _TERMINATORS or callee_of(op) is not None:
        return False
    if op.name == "stablehlo.custom_call":
        return _calls.has_side_effect(op)
    return op.name.split(".")[0] not in _PURE_DIALECTS or op.name in _EFFECTS
