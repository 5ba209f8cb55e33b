"""Which ops a host call may well go on beside: what takes XLA more than one pass over arrays."""

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, side_effects

_OPS = {
    "chlo.top_k",
    "stablehlo.cholesky",
    "stablehlo.composite",
    "stablehlo.convolution",
    "stablehlo.dot",
    "stablehlo.dot_general",
    "stablehlo.fft",
    "stablehlo.infeed",
    "stablehlo.outfeed",
    "stablehlo.recv",
    "stablehlo.send",
    "stablehlo.sort",
    "stablehlo.triangular_solve",
    "stablehlo.while",
}

# Custom calls that only say something of their operand.
_NOTES = {
    "LayoutConstraint",
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "shape_assertion",
}


class Heavy:
    """What is heavy in a module, which does not change meanwhile."""

    def __init__(self, module: ir.Module) -> None:
        functions = side_effects.functions(module)
        bodies = {name: custom_calls.walk(op)[1:] for name, op in functions.items()}
        own = [name for name, ops in bodies.items() if any(map(_is_heavy, ops))]
        self._functions = side_effects.reaching(bodies, own)

    def holds(self, op: ir.Operation) -> bool:
        """Whether an op is heavy, or has one in its regions or in functions that it calls."""
        return any(
            _is_heavy(inner) or side_effects.callee_of(inner) in self._functions
            for inner in custom_calls.walk(op)
        )


def _is_heavy(op: ir.Operation) -> bool:
    target = custom_calls.target_of(op)
    return op.name in _OPS if target is None else target not in _NOTES
