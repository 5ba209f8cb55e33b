"""`hostcall-partition`: device functions, and host calls between them; see docs/passes.md.

Pairs (operand or result, bytes) in attributes mark each value that crosses. A value that the host
has already gets no mark, so each crosses once, and only where it is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import count

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir.diagnostics import Failure, report, report_all
from hostcall_mlir.ir.jaxlib_names import address, attribute_of, bounds_of, is_token, padded_type
from hostcall_mlir.passes import Options, Pass, value_errors
from hostcall_mlir.passes.inlining import inline_host_callers
from hostcall_runtime import _scheduling
from hostcall_runtime._scheduling import Side

# Constants of up to this many elements are copied to their users.
_SMALL = 16


def is_small_constant(op: ir.Operation) -> bool:
    """Return whether clusters copy the op, a constant, instead of taking it as an argument."""
    # XLA can do more with a constant. Large ones would be in the text twice.
    if op.name != "stablehlo.constant":
        return False
    value = attribute_of(op, "value")
    if not isinstance(value, ir.DenseElementsAttr):
        return False
    return bool(value.is_splat) or len(value) <= _SMALL


def outline(
    ops: Sequence[ir.Operation], before: ir.Operation, location: ir.Location
) -> tuple[ir.Operation, ir.Operation]:
    """Move ops into a new function, and call it before the op `before`."""
    # Return the func.call, whose callee has no name yet, and the func.func, in no module yet.
    inner = [nested for op in ops for nested in custom_calls.walk(op)]
    inputs, constants = _inputs(inner)
    own = {*map(address, inner)}
    outputs = [
        result
        for op in ops
        for result in op.results
        if any(address(use.owner.operation) not in own for use in result.uses)
    ]
    taken, returned = ([value.type for value in values] for values in (inputs, outputs))
    with ir.InsertionPoint(before), ops[0].location:
        call = func.CallOp(returned, "unnamed", inputs).operation
    function = func.FuncOp(
        "unnamed", (taken, returned), visibility="private", loc=location, ip=False
    )
    block = function.add_entry_block([value.location for value in inputs])
    # All uses of the outputs become uses of the call's results. The loop restores the inner uses.
    inside = dict(zip(inputs, block.arguments, strict=True))
    for value, result in zip(outputs, call.results, strict=True):
        value.replace_all_uses_with(result)
        inside[result] = value
    for constant in constants:
        inside[constant.result] = constant.clone(ip=ir.InsertionPoint(block)).result
    for op in ops:
        block.append(op)
    for op in inner:
        for index, operand in enumerate(op.operands):
            if operand in inside:
                op.operands[index] = inside[operand]
    with ir.InsertionPoint(block):
        func.ReturnOp(outputs, loc=ops[-1].location)
    return call, function.operation


def _inputs(inner: Sequence[ir.Operation]) -> tuple[list[ir.Value], list[ir.Operation]]:
    """Return the outside values that ops use, in the order of use; small constants come apart."""
    own = {*map(address, inner)}
    inputs: dict[ir.Value, None] = {}
    constants: dict[int, ir.Operation] = {}
    for op in inner:
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, ir.Block):
                if address(owner.owner.operation) not in own:
                    inputs[operand] = None
            elif address(owner.operation) not in own:
                if is_small_constant(owner.operation):
                    constants[address(owner.operation)] = owner.operation
                else:
                    inputs[operand] = None
    return [*inputs], [*constants.values()]


TO_HOST = "hostcall.to_host"
TO_DEVICE = "hostcall.to_device"
_BRANCHES = ("stablehlo.case", "stablehlo.if")
_SIZE = 4  # the bytes of a true size, an i32


def mark(block: ir.Block, on_host: frozenset[ir.Value] = frozenset()) -> None:
    """Mark the ops of a partitioned block, where the values in `on_host` are on the host, too."""
    known = {*on_host}
    for op in (op.operation for op in block):
        if custom_calls.runs_on_host(op):
            _mark_operands(op, range(len(op.operands)), known)
            _mark_results(op, known)
        elif op.name in _BRANCHES or (op.name == "stablehlo.return" and _is_condition(block)):
            _mark_operands(op, [0], known)
        for region in op.regions:
            mark(region.blocks[0], frozenset(known))


def marked(op: ir.Operation, name: str) -> dict[int, int]:
    """Return the operands or results with a mark, and their bytes."""
    return dict(custom_calls.pairs(attribute_of(op, name)))


def _is_condition(block: ir.Block) -> bool:
    owner = block.owner.operation
    return bool(owner.name == "stablehlo.while" and owner.regions[0].blocks[0] == block)


def _mark_operands(op: ir.Operation, indices: Sequence[int], known: set[ir.Value]) -> None:
    pairs: list[int] = []
    for index in indices:
        operand = op.operands[index]
        if is_token(operand.type) or operand in known:
            continue
        known.add(operand)
        pairs += (index, _bytes(operand.type))
    _write(op, TO_HOST, pairs)


def _mark_results(op: ir.Operation, known: set[ir.Value]) -> None:
    pairs: list[int] = []
    for index, (type_, values) in enumerate(_results(op)):
        if is_token(type_):
            continue
        known |= {*values}
        if any(_is_for_device(use) for value in values for use in value.uses):
            pairs += (index, _bytes(type_))
    _write(op, TO_DEVICE, pairs)


def _results(op: ir.Operation) -> Iterator[tuple[ir.Type, list[ir.Value]]]:
    """Yield the type of each result and the values for it; a tuple counts as its elements."""
    types = custom_calls.result_types(op)
    if len(op.results) != 1 or not isinstance(op.results[0].type, ir.TupleType):
        yield from ((result.type, [result]) for result in op.results)
        return
    parts: dict[int, list[ir.Value]] = {index: [] for index in range(len(types))}
    for use in op.results[0].uses:
        owner = use.owner.operation
        if owner.name == "stablehlo.get_tuple_element":
            parts[ir.IntegerAttr(owner.attributes["index"]).value].append(owner.results[0])
    yield from zip(types, parts.values(), strict=True)


def _is_for_device(use: ir.OpOperand) -> bool:
    """Return whether a use of a value is on the device, or passes it out of a block."""
    op = use.owner.operation
    if op.name in _BRANCHES or custom_calls.runs_on_host(op):
        return False
    return not (op.name == "stablehlo.return" and _is_condition(op.block))


def _write(op: ir.Operation, name: str, pairs: Sequence[int]) -> None:
    if pairs:
        op.attributes[name] = ir.DenseI64ArrayAttr.get(list(pairs))


def _bytes(type_: ir.Type) -> int:
    """Return the bytes that cross for a value; padding and true sizes cross, too."""
    if isinstance(type_, ir.TupleType):
        return sum(_bytes(type_.get_type(i)) for i in range(type_.num_types))
    padded = padded_type(type_)
    count: int = math.prod(padded.shape)
    return count * _element_bytes(padded.element_type) + _SIZE * len(bounds_of(type_))


def _element_bytes(type_: ir.Type) -> int:
    if isinstance(type_, ir.ComplexType):
        return 2 * _element_bytes(type_.element_type)
    assert isinstance(type_, ir.IntegerType | ir.FloatType), f"unknown size of {type_}"
    return max(1, int(type_.width) // 8)  # a bool takes a byte


_CONTROL = {"stablehlo.case", "stablehlo.if", "stablehlo.while"}
_TOKENS = {"stablehlo.after_all", "stablehlo.create_token"}


def _run(module: ir.Module, options: Options) -> None:
    name = options.get("function", "main")
    entry = traversal.functions(module).get(name)
    if entry is None or not entry.regions[0].blocks:
        report(module.operation, f"{PASS.name}: there is no function @{name} with a body")
        raise Failure
    value_errors.write_searches(module)
    inline_host_callers(module, entry, PASS.name)
    traversal.drop_unused(module)
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
    mark(entry.regions[0].blocks[0])


PASS = Pass(
    "hostcall-partition",
    "partition a function into device functions and host calls between them",
    _run,
    {"function": "the one to partition; main"},
)


def _control(ops: Sequence[ir.Operation], entry: ir.Operation) -> list[ir.Operation]:
    """Return the ops with regions that hold host calls, the outer ones first."""
    found: set[int] = set()
    problems = []
    for call in filter(custom_calls.runs_on_host, ops):
        op = call.parent.operation
        while op != entry and address(op) not in found:
            if op.name not in _CONTROL:
                text = (
                    f"{PASS.name}: a host call inside of '{op.name}', which XLA runs as a whole; "
                    "host calls can be in while, case and if"
                )
                problems.append((call, text))
                break
            found.add(address(op))
            op = op.parent.operation
    report_all(problems)
    return [op for op in ops if address(op) in found]


def _host_ops(
    ops: Sequence[ir.Operation], control: Sequence[ir.Operation], blocks: Sequence[ir.Block]
) -> set[int]:
    """Return the ops of `blocks` that stay in the function, since they are not for the device."""
    host = {*map(address, control)}
    own = {*blocks}
    for op in ops[1:]:
        if op.block in own and (custom_calls.runs_on_host(op) or _is_plumbing(op, host)):
            host.add(address(op))
    return host


def _is_plumbing(op: ir.Operation, host: set[int]) -> bool:
    """Return whether the op only joins tokens, or takes values out of a host call's tuple."""
    if op.name == "stablehlo.tuple":
        return any(is_token(operand.type) for operand in op.operands)
    if op.name == "stablehlo.get_tuple_element":
        owner = op.operands[0].owner
        return not isinstance(owner, ir.Block) and address(owner.operation) in host
    return op.name in _TOKENS


def _materialize(blocks: Sequence[ir.Block], host: set[int]) -> dict[int, ir.Operation]:
    """Return the small constants, which clusters copy, so that no cluster holds them itself."""
    # A host op or a terminator uses a copy instead: an ordinary value, which a cluster returns.
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
    """Partition a block, and return the new function for each new call of a cluster."""
    *ops, terminator = (op.operation for op in block)
    ops = [op for op in ops if address(op) not in constants]
    members: dict[int, list[ir.Operation]] = defaultdict(list)
    for op, step in zip(ops, _steps(ops, host), strict=True):
        members[step].append(op)
    clusters: dict[int, ir.Operation] = {}
    for step in sorted(members):
        if step % 2 == 0:
            call, function = outline(members[step], terminator, location)
            clusters[address(call)] = function
            continue
        for op in members[step]:
            op.move_before(terminator)
    return clusters


def _steps(ops: Sequence[ir.Operation], host: Collection[int]) -> list[int]:
    """Return the step of each op."""
    # An op without operands, such as a large constant, goes where it is used first; the terminator,
    # which follows all ops, counts as a user of each.
    before = traversal.predecessors(ops)
    places = [Side.HOST if address(op) in host else Side.COMPILED for op in ops]
    free = [i for i, op in enumerate(ops) if not (before[i] or op.operands or op.regions)]
    before.append([*range(len(ops))])
    places.append(Side.HOST)
    steps = _scheduling.first_steps(places, before)
    movable = (i for i in free if places[i] is Side.COMPILED)
    return _scheduling.sink(before, steps, movable)[:-1]


def _name(module: ir.Module, entry: ir.Operation, clusters: dict[int, ir.Operation]) -> None:
    """Name the clusters in the order of their calls, and insert them behind the function."""
    taken = {*traversal.functions(module)}
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
