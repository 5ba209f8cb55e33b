"""`hostcall-partition`: device functions, and host calls between them.

The function `main` is taken apart: what runs on the device moves to functions `@cluster_0`,
`@cluster_1`, …, and `@main` calls these and makes the host calls between them. So the program runs
where XLA cannot call back: a runner compiles the clusters, and interprets `@main`, which holds

- `func.call` of clusters and the custom calls `@hostcall`,
- `stablehlo.while`, `stablehlo.case` and `stablehlo.if` with host calls in them, whose regions are
  like `@main` itself; those without any are part of a cluster,
- `stablehlo.create_token`, `after_all`, `tuple` of tokens and, for a host call with one tuple as
  its result, `get_tuple_element`.

There are as few clusters as data and tokens allow. What nobody uses is dropped, as by
`hostcall-dce`, and small constants are written again where they are used. Functions that make host
calls are inlined, up to half a million ops.

Each value that crosses between the device and the host is marked: see `transfers`.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.cosine %arg0 : tensor<3xf32>
  %3 = stablehlo.add %1, %2 : tensor<3xf32>
  return %3 : tensor<3xf32>
}
```

After `hostcall-partition`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0:2 = call @cluster_0(%arg0) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %1 = stablehlo.custom_call @hostcall(%0#0) {api_version = 4 : i32, backend_config = {callback = "pkg:f", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}, hostcall.to_device = array<i64: 0, 12>, hostcall.to_host = array<i64: 0, 12>} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = call @cluster_1(%1, %0#1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %2 : tensor<3xf32>
}
func.func private @cluster_0(%arg0: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.cosine %arg0 : tensor<3xf32>
  return %0, %1 : tensor<3xf32>, tensor<3xf32>
}
func.func private @cluster_1(%arg0: tensor<3xf32>, %arg1: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %arg0, %arg1 : tensor<3xf32>
  return %0 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, side_effects
from hostcall_mlir.ir.diagnostics import Failure, report
from hostcall_mlir.ir.jaxlib_names import address, is_token
from hostcall_mlir.passes import transfers
from hostcall_mlir.passes.base import Options, Pass
from hostcall_mlir.passes.clusters import is_small_constant, outline
from hostcall_mlir.passes.inlining import inline_host_callers
from hostcall_mlir.passes.schedule import schedule

_CONTROL = {"stablehlo.case", "stablehlo.if", "stablehlo.while"}
_TOKENS = {"stablehlo.after_all", "stablehlo.create_token"}


def _run(module: ir.Module, options: Options) -> None:
    name = options.get("function", "main")
    entry = side_effects.functions(module).get(name)
    if entry is None or not entry.regions[0].blocks:
        report(module.operation, f"{PASS.name}: there is no function @{name} with a body")
        raise Failure
    inline_host_callers(module, entry, PASS.name)
    side_effects.drop_unused(module)
    ops = custom_calls.walk(entry)
    control = _control(ops, entry)
    blocks = [block for op in [entry, *control] for region in op.regions for block in region]
    host = _host_ops(ops, control, blocks)
    constants = _materialize(blocks, host)
    clusters: dict[int, ir.Operation] = {}
    for block in blocks:
        clusters |= _partition(block, host, constants.keys(), entry.location)
    for constant in constants.values():
        constant.erase()
    _name(module, entry, clusters)
    transfers.mark(entry.regions[0].blocks[0])


PASS = Pass(
    "hostcall-partition",
    "partition a function into device functions and host calls between them",
    _run,
    {"function": "the one to partition; main"},
)


def _control(ops: Sequence[ir.Operation], entry: ir.Operation) -> list[ir.Operation]:
    """The ops with regions that hold host calls, the outer ones first."""
    found: set[int] = set()
    ok = True
    for call in filter(custom_calls.is_host_call, ops):
        op = call.parent.operation
        while op != entry and address(op) not in found:
            if op.name not in _CONTROL:
                ok = False
                report(
                    call,
                    f"{PASS.name}: a host call inside of '{op.name}', which XLA runs as a whole; "
                    "host calls can be in while, case and if",
                )
                break
            found.add(address(op))
            op = op.parent.operation
    if not ok:
        raise Failure
    return [op for op in ops if address(op) in found]


def _host_ops(
    ops: Sequence[ir.Operation], control: Sequence[ir.Operation], blocks: Sequence[ir.Block]
) -> set[int]:
    """The ops that stay in the function: those of `blocks` that are not for the device."""
    host = {*map(address, control)}
    own = {*blocks}
    for op in ops[1:]:
        if op.block in own and (custom_calls.is_host_call(op) or _is_plumbing(op, host)):
            host.add(address(op))
    return host


def _is_plumbing(op: ir.Operation, host: set[int]) -> bool:
    """Whether the op only joins tokens, or takes values out of a host call's tuple."""
    if op.name == "stablehlo.tuple":
        return any(is_token(operand.type) for operand in op.operands)
    if op.name == "stablehlo.get_tuple_element":
        owner = op.operands[0].owner
        return not isinstance(owner, ir.Block) and address(owner.operation) in host
    return op.name in _TOKENS


def _materialize(blocks: Sequence[ir.Block], host: set[int]) -> dict[int, ir.Operation]:
    """The small constants, of which clusters take copies, so that these are in none themselves.

    Where a host op or a terminator uses one, a copy takes its place there: a value like any other,
    which a cluster returns.
    """
    staying = host | {address([*block][-1].operation) for block in blocks}
    constants = [
        op.operation for block in blocks for op in block if is_small_constant(op.operation)
    ]
    for constant in constants:
        uses = [
            (owner, use.operand_number)
            for use in constant.result.uses
            if address(owner := use.owner.operation) in staying
        ]
        if uses:
            copy = constant.clone(ip=ir.InsertionPoint(constant))
            for user, number in uses:
                user.operands[number] = copy.result
    return {address(constant): constant for constant in constants}


def _partition(
    block: ir.Block, host: set[int], constants: Collection[int], location: ir.Location
) -> dict[int, ir.Operation]:
    """Partitions a block, and returns for each new call of a cluster the function that it calls."""
    *ops, terminator = (op.operation for op in block)
    clusters: dict[int, ir.Operation] = {}
    for step in schedule([op for op in ops if address(op) not in constants], host):
        if step.cluster:
            call, function = outline(step.cluster, terminator, location)
            clusters[address(call)] = function
        for op in step.host:
            op.move_before(terminator)
    return clusters


def _name(module: ir.Module, entry: ir.Operation, clusters: dict[int, ir.Operation]) -> None:
    """Names the clusters in the order of their calls, and puts them behind the function."""
    taken = {*side_effects.functions(module)}
    names = (name for i in count() if (name := f"cluster_{i}") not in taken)
    last = entry
    for call in custom_calls.walk(entry):
        cluster = clusters.get(address(call))
        if cluster is not None:
            name = next(names)
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
            cluster.attributes["sym_name"] = ir.StringAttr.get(name)
            ir.InsertionPoint.after(last).insert(cluster)
            last = cluster
