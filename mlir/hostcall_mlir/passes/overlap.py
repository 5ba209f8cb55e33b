"""`hostcall-overlap`: pure host calls begin early, and are awaited late; see docs/passes.md.

The result is for XLA's CPU in a process with handlers for the three custom calls, and no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure
from hostcall_mlir.ir.jaxlib_names import address, is_token
from hostcall_mlir.passes import Options, Pass
from hostcall_mlir.passes.inlining import inline_host_callers
from hostcall_runtime import _scheduling

_HEAVY = (
    "cholesky composite convolution dot dot_general fft infeed outfeed recv send sort "
    "triangular_solve while"
)
_OPS = {"chlo.top_k", *(f"stablehlo.{name}" for name in _HEAVY.split())}

# Custom calls that only annotate their operand, or look at each of its elements once.
_LIGHT = {
    *("LayoutConstraint", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"),
    *("annotate_device_placement", "shape_assertion", custom_calls.RAISE, custom_calls.ANY),
}


def _heavy_functions(module: ir.Module) -> set[str]:
    """Return the functions that hold a heavy op, or call a function that does."""
    bodies = {n: custom_calls.walk(op)[1:] for n, op in traversal.functions(module).items()}
    own = [name for name, ops in bodies.items() if any(map(_is_heavy, ops))]
    return traversal.reaching(bodies, own)


def _is_heavy(op: ir.Operation) -> bool:
    target = custom_calls.target_of(op)
    return op.name in _OPS if target is None else target not in _LIGHT


_MOST_VALUES = 16  # the most values of one op that a gate takes


def overlapping(module: ir.Module, keep: Collection[int | str]) -> ir.Module | None:
    """Run the pass over a copy of a module."""
    # Return the copy, or None if no calls overlap, or the pass rejects the module. Calls of the
    # callbacks in `keep`, ids or names, stay as they are.
    kept = {*map(str, keep)}
    if not any(_may_begin_early(call, kept) for call in custom_calls.host_calls(module)):
        return None
    with Collector(module.context), module.context, ir.Location.unknown():
        copy = private.copy_of(module)
        try:
            PASS.run(copy, {"keep": ",".join(kept)})
            copy.operation.verify()
        except (Failure, ir.MLIRError):
            return None
        ops = custom_calls.walk(copy)
        return copy if any(custom_calls.target_of(op) == custom_calls.GATE for op in ops) else None


def _run(module: ir.Module, options: Options) -> None:
    kept = {*filter(None, options.get("keep", "").split(","))}
    functions = traversal.functions(module).values()
    # Collected first, since inlining may erase the private functions.
    entries = [function for function in functions if not traversal.is_private(function)]
    for entry in entries:
        inline_host_callers(module, entry, PASS.name)
    traversal.drop_unused(module)
    blocks: dict[ir.Block, list[ir.Operation]] = {}
    for op in custom_calls.host_calls(module):
        if _may_begin_early(op, kept) and _is_in_sequence(op):
            blocks.setdefault(op.block, []).append(op)
    heavy = _heavy_functions(module)
    for block, calls in blocks.items():
        _overlap_in(block, calls, heavy)


PASS = Pass(
    "hostcall-overlap",
    "let pure calls go on while the program does",
    _run,
    {"keep": "the ids or names of callbacks whose calls stay as they are: 3,pkg.mod:fn"},
)


def _may_begin_early(call: ir.Operation, kept: Collection[str]) -> bool:
    callback = custom_calls.early_config_of(call).get("callback")
    if not isinstance(callback, ir.IntegerAttr | ir.StringAttr) or str(callback.value) in kept:
        return False
    types = [value.type for value in call.operands] + custom_calls.result_types(call)
    return not custom_calls.has_side_effect(call) and all(map(custom_calls.is_array, types))


def _is_in_sequence(op: ir.Operation) -> bool:
    """Return whether an op is in a function, a branch or the body of a loop."""
    parent = op.parent.operation
    if parent.name == "stablehlo.while":
        return bool(op.block.region == parent.regions[1])
    return parent.name in ("func.func", "stablehlo.case", "stablehlo.if")


def _overlap_in(block: ir.Block, calls: Sequence[ir.Operation], heavy: set[str]) -> None:
    *ops, terminator = [op.operation for op in block]
    before = traversal.predecessors(ops)
    begun = {*map(address, calls)}
    early = {i for i, op in enumerate(ops) if address(op) in begun}
    if terminator.parent.operation.name == "stablehlo.while":
        early &= _varying(block, ops, before, terminator)
    beside = {
        i: _values(op)
        for i, op in enumerate(ops)
        if i not in early
        and any(_is_heavy(o) or traversal.callee_of(o) in heavy for o in custom_calls.walk(op))
    }
    steps = _scheduling.steps_of(before, early)
    gates = _scheduling.gates_of(steps, beside)
    if gates:
        _write(ops, steps, gates, beside, terminator)


def _varying(
    block: ir.Block,
    ops: Sequence[ir.Operation],
    before: Sequence[Collection[int]],
    terminator: ir.Operation,
) -> set[int]:
    """Return the ops of a loop's body that may differ from one iteration to another."""
    pairs = zip(block.arguments, terminator.operands, strict=True)
    arguments = {argument for argument, value in pairs if argument != value}
    found: set[int] = set()
    for i, op in enumerate(ops):
        inner = custom_calls.walk(op)
        if (
            not found.isdisjoint(before[i])
            or any(map(custom_calls.has_side_effect, inner))
            or any(value in arguments for one in inner for value in one.operands)
        ):
            found.add(i)
    return found


def _values(op: ir.Operation) -> list[ir.Value]:
    """Return the results of an op that a gate can take."""
    runs_anyway = custom_calls.has_side_effect(op)
    return [
        value
        for value in op.results
        if (runs_anyway or traversal.is_used(value))
        and (custom_calls.is_array(value.type) or is_token(value.type))
    ][:_MOST_VALUES]


def _write(
    ops: Sequence[ir.Operation],
    steps: Sequence[_scheduling.Step],
    gates: Sequence[_scheduling.Gate],
    beside: Mapping[int, list[ir.Value]],
    terminator: ir.Operation,
) -> None:
    """Reorder a block by the steps, and divide the calls behind gates in two."""
    numbers = {call: number for number, gate in enumerate(gates) for call in gate.calls}
    handles: dict[int, ir.Value] = {}
    opened: list[ir.Value] = []
    for kind, i in steps:
        op = ops[i]
        if i not in numbers:
            if kind != _scheduling.WAITS:
                op.move_before(terminator)
            continue
        with ir.InsertionPoint(terminator), op.location:
            if kind == _scheduling.BEGINS:
                handles[i] = custom_calls.start(op)
                continue
            if len(opened) == numbers[i]:
                awaited = gates[len(opened)].awaited
                values = [v for j in awaited for v in ([handles[j]] if j in handles else beside[j])]
                opened.append(custom_calls.gate([*values, *opened[-1:]], op))
            results = custom_calls.done(op, handles[i], opened[-1])
        traversal.replace(op, results)
