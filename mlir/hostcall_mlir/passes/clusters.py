"""Making a function of ops that run on the device together."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import address, attribute_of

# Constants up to this many elements are written again wherever they are used.
_SMALL = 16


def is_small_constant(op: ir.Operation) -> bool:
    """Whether the op is a constant that clusters have copies of, in the place of arguments.

    XLA can do more with a constant than with an argument; large ones would be in the text twice.
    """
    if op.name != "stablehlo.constant":
        return False
    value = attribute_of(op, "value")
    if not isinstance(value, ir.DenseElementsAttr):
        return False
    return bool(value.is_splat) or len(value) <= _SMALL


def outline(
    ops: Sequence[ir.Operation], before: ir.Operation, location: ir.Location
) -> tuple[ir.Operation, ir.Operation]:
    """Moves ops into a new function, and calls it in their place.

    Args:
      ops: in an order in which they can run.
      before: where to insert the call.
      location: of the function.

    Returns:
      The func.call, whose callee has no name yet, and the func.func, which is in no module yet.
    """
    inner = [nested for op in ops for nested in custom_calls.walk(op)]
    inputs, constants = _inputs(inner)
    outputs = _outputs(ops, {*map(address, inner)})
    call = ir.Operation.create(
        "func.call",
        [value.type for value in outputs],
        inputs,
        {"callee": ir.FlatSymbolRefAttr.get("unnamed")},
        loc=ops[0].location,
        ip=ir.InsertionPoint(before),
    )
    function, block = _function(inputs, outputs, location)
    # All uses of the outputs become uses of the call's results, and those inside change back below.
    inside = dict(zip(inputs, block.arguments, strict=True))
    for value, result in zip(outputs, call.results, strict=True):
        value.replace_all_uses_with(result)
        inside[result] = value
    for constant in constants:
        inside[constant.result] = constant.clone(ip=ir.InsertionPoint(block)).result
    _fill(block, ops, inner, inside)
    with ir.InsertionPoint(block):
        ir.Operation.create("func.return", operands=outputs, loc=ops[-1].location)
    return call, function


def _function(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], location: ir.Location
) -> tuple[ir.Operation, ir.Block]:
    """A function without ops, from values like the inputs to values like the outputs."""
    types = ir.FunctionType.get([v.type for v in inputs], [v.type for v in outputs])
    attributes = {
        "sym_name": ir.StringAttr.get("unnamed"),
        "function_type": ir.TypeAttr.get(types),
        "sym_visibility": ir.StringAttr.get("private"),
    }
    function = ir.Operation.create(
        "func.func", attributes=attributes, regions=1, loc=location, ip=False
    )
    locations = [value.location for value in inputs]
    return function, ir.Block.create_at_start(function.regions[0], types.inputs, locations)


def _inputs(inner: Sequence[ir.Operation]) -> tuple[list[ir.Value], list[ir.Operation]]:
    """The values from outside that ops use, in the order of use, and the constants among them."""
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


def _outputs(ops: Sequence[ir.Operation], own: set[int]) -> list[ir.Value]:
    """The results of ops that others use."""
    return [
        result
        for op in ops
        for result in op.results
        if any(address(use.owner.operation) not in own for use in result.uses)
    ]


def _fill(
    block: ir.Block,
    ops: Sequence[ir.Operation],
    inner: Sequence[ir.Operation],
    inside: dict[ir.Value, ir.Value],
) -> None:
    for op in ops:
        block.append(op)
    for op in inner:
        for index, operand in enumerate(op.operands):
            if operand in inside:
                op.operands[index] = inside[operand]
