"""Marks of what crosses between a device and the host in a partitioned function.

Clusters run on the device, host calls on the host. What enters and leaves the function is on the
device, and so is what loops carry and what they and branches return. Each value that crosses has a
mark where it does, in pairs as in the other attributes of host calls:

- `hostcall.to_host`: (operand, bytes) for each operand that has to be copied to the host, of a host
  call, or of an op that decides there which way the function goes: `case`, `if`, and the `return`
  of a loop's condition,
- `hostcall.to_device`: (result, bytes) for each result of a host call that the device needs.

A value that is on the host already has no mark: so each crosses once, and only where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import attribute_of, bounds_of, is_token

TO_HOST = "hostcall.to_host"
TO_DEVICE = "hostcall.to_device"

_BRANCHES = ("stablehlo.case", "stablehlo.if")
_SIZE = 4  # of a true size, an i32


def mark(block: ir.Block, on_host: frozenset[ir.Value] = frozenset()) -> None:
    """Marks the ops of a block that `hostcall-partition` has made, and of those in it.

    Args:
      block: of the function, or of a loop or branch in it.
      on_host: the values from outside of the block that are on the host, as well or only.
    """
    known = {*on_host}
    for op in (op.operation for op in block):
        if custom_calls.is_host_call(op):
            _mark_operands(op, range(len(op.operands)), known)
            _mark_results(op, known)
        elif op.name in _BRANCHES or (op.name == "stablehlo.return" and _is_condition(block)):
            _mark_operands(op, [0], known)
        for region in op.regions:
            mark(region.blocks[0], frozenset(known))


def marked(op: ir.Operation, name: str) -> dict[int, int]:
    """The operands or results with a mark, and their bytes."""
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
    """The type of each result, and the values that stand for it: a tuple is taken apart."""
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
    """Whether a value is used on the device, or goes out of a block."""
    op = use.owner.operation
    if op.name in _BRANCHES or custom_calls.is_host_call(op):
        return False
    return not (op.name == "stablehlo.return" and _is_condition(op.block))


def _write(op: ir.Operation, name: str, pairs: Sequence[int]) -> None:
    if pairs:
        op.attributes[name] = ir.DenseI64ArrayAttr.get(list(pairs))


def _bytes(type_: ir.Type) -> int:
    """How many bytes cross for a value: of one of bounded size the whole, and the true sizes."""
    if isinstance(type_, ir.TupleType):
        return sum(_bytes(type_.get_type(i)) for i in range(type_.num_types))
    tensor, bounds = ir.RankedTensorType(type_), bounds_of(type_)
    count = 1
    for dim, size in enumerate(tensor.shape):
        count *= bounds.get(dim, size)
    return count * _element_bytes(tensor.element_type) + _SIZE * len(bounds)


def _element_bytes(type_: ir.Type) -> int:
    if isinstance(type_, ir.ComplexType):
        return 2 * _element_bytes(type_.element_type)
    assert isinstance(type_, ir.IntegerType | ir.FloatType), f"nobody knows how large a {type_} is"
    return max(1, int(type_.width) // 8)  # a bool takes a byte
