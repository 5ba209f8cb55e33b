"""`hostcall-overlap`: pure host calls begin early, and are waited for late.

XLA's CPU runs a program of few or small ops one after another, and others in an order that saves
memory. So that pure calls go on beside one another, beside calls with side effects and beside what is
heavy, such a call becomes two custom calls: `@hostcall_start` begins it, and `@hostcall_done` takes its
results. Before the latter comes a gate, which takes what shall run before anything waits.

Functions that make host calls are inlined first, and what nobody uses is dropped. A call that overlaps
with nothing stays as it is. So do calls in conditions of loops, those in a loop that are the same in
each iteration, which XLA makes once, and the callbacks in `keep`. What comes of it is for XLA's CPU in a
process with handlers for the three, and not for files.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.sine %arg0 : tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall(%1) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %3 = stablehlo.add %0, %2 : tensor<3xf32>
  return %3 : tensor<3xf32>
}
```

After `hostcall-overlap`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall_start(%arg0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, results = array<i64: 11, 1, 3>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, has_side_effect = true} : (tensor<3xf32>) -> tensor<i64>
  %1 = stablehlo.sine %arg0 : tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall_start(%1) {api_version = 4 : i32, backend_config = {callback = "pkg:g", dynamic_operands = array<i64>, dynamic_results = array<i64>, results = array<i64: 11, 1, 3>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, has_side_effect = true} : (tensor<3xf32>) -> tensor<i64>
  %3 = stablehlo.custom_call @hostcall_gate(%0, %2) {api_version = 4 : i32, backend_config = {}} : (tensor<i64>, tensor<i64>) -> tensor<i64>
  %4 = stablehlo.custom_call @hostcall_done(%0, %3) {api_version = 4 : i32, backend_config = {}, has_side_effect = true} : (tensor<i64>, tensor<i64>) -> tensor<3xf32>
  %5 = stablehlo.custom_call @hostcall_done(%2, %3) {api_version = 4 : i32, backend_config = {}, has_side_effect = true} : (tensor<i64>, tensor<i64>) -> tensor<3xf32>
  %6 = stablehlo.add %4, %5 : tensor<3xf32>
  return %6 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, early_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure
from hostcall_mlir.ir.jaxlib_names import address, is_token
from hostcall_mlir.passes.base import Options, Pass
from hostcall_mlir.passes.heavy import Heavy
from hostcall_mlir.passes.inlining import inline_host_callers, is_private
from hostcall_mlir.passes.schedule import definers
from hostcall_runtime import _overlap

# As many values as one gate takes of one op.
_MOST_VALUES = 16


def overlapping(module: ir.Module, keep: Collection[int | str]) -> ir.Module | None:
    """What the pass makes of a copy of a module.

    Args:
      module: stays as it is.
      keep: the ids or names of callbacks whose calls stay as they are.

    Returns:
      None where no calls overlap, or the pass does not take the module.
    """
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
        return copy if any(custom_calls.target_of(op) == early_calls.GATE for op in ops) else None


def _run(module: ir.Module, options: Options) -> None:
    kept = {*filter(None, options.get("keep", "").split(","))}
    functions = side_effects.functions(module).values()
    # Found before: the private ones may be erased.
    entries = [function for function in functions if not is_private(function)]
    for entry in entries:
        inline_host_callers(module, entry, PASS.name)
    side_effects.drop_unused(module)
    blocks: dict[ir.Block, list[ir.Operation]] = {}
    for op in custom_calls.host_calls(module):
        if _may_begin_early(op, kept) and _is_in_sequence(op):
            blocks.setdefault(op.block, []).append(op)
    heavy = Heavy(module)
    for block, calls in blocks.items():
        _overlap_in(block, calls, heavy)


PASS = Pass(
    "hostcall-overlap",
    "let pure calls go on while the program does",
    _run,
    {"keep": "the ids or names of callbacks whose calls stay as they are: 3,pkg.mod:fn"},
)


def _may_begin_early(call: ir.Operation, kept: Collection[str]) -> bool:
    callback = early_calls.config_of(call).get("callback")
    if not isinstance(callback, ir.IntegerAttr | ir.StringAttr) or str(callback.value) in kept:
        return False
    types = [value.type for value in call.operands] + custom_calls.result_types(call)
    return not custom_calls.has_side_effect(call) and all(map(early_calls.is_array, types))


def _is_in_sequence(op: ir.Operation) -> bool:
    """Whether an op is in a function, a branch or the body of a loop."""
    parent = op.parent.operation
    if parent.name == "stablehlo.while":
        return bool(op.block.region == parent.regions[1])
    return parent.name in ("func.func", "stablehlo.case", "stablehlo.if")


def _overlap_in(block: ir.Block, calls: Sequence[ir.Operation], heavy: Heavy) -> None:
    *ops, terminator = [op.operation for op in block]
    position = {address(op): i for i, op in enumerate(ops)}
    before = [{position[key] for key in definers(op) if key in position} for op in ops]
    early = {position[address(call)] for call in calls}
    if terminator.parent.operation.name == "stablehlo.while":
        early &= _varying(block, ops, before, terminator)
    beside = {i: _values(op) for i, op in enumerate(ops) if i not in early and heavy.holds(op)}
    steps = _overlap.steps_of(before, early)
    gates = _overlap.gates_of(steps, beside)
    if gates:
        _write(ops, steps, gates, beside, terminator)


def _varying(
    block: ir.Block,
    ops: Sequence[ir.Operation],
    before: Sequence[Collection[int]],
    terminator: ir.Operation,
) -> set[int]:
    """Which ops of a loop's body may do another thing in another iteration."""
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
    """The results of an op that a gate can take."""
    runs_anyway = custom_calls.has_side_effect(op)
    return [
        value
        for value in op.results
        if (runs_anyway or next(iter(value.uses), None) is not None)
        and (early_calls.is_array(value.type) or is_token(value.type))
    ][:_MOST_VALUES]


def _write(
    ops: Sequence[ir.Operation],
    steps: Sequence[_overlap.Step],
    gates: Sequence[_overlap.Gate],
    beside: Mapping[int, list[ir.Value]],
    terminator: ir.Operation,
) -> None:
    """Brings a block in the order of the steps, with the calls behind gates in two."""
    numbers = {call: number for number, gate in enumerate(gates) for call in gate.calls}
    handles: dict[int, ir.Value] = {}
    opened: list[ir.Value] = []
    for kind, i in steps:
        op = ops[i]
        if i not in numbers:
            if kind != _overlap.WAITS:
                op.move_before(terminator)
            continue
        with ir.InsertionPoint(terminator), op.location:
            if kind == _overlap.BEGINS:
                handles[i] = early_calls.start(op)
                continue
            if len(opened) == numbers[i]:
                awaited = gates[len(opened)].awaited
                values = [v for j in awaited for v in ([handles[j]] if j in handles else beside[j])]
                opened.append(early_calls.gate([*values, *opened[-1:]], op))
            results = early_calls.done(op, handles[i], opened[-1])
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
