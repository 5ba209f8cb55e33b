"""Tokens, which order calls: a check of their uses, and a fix for functions that take only tokens.

XLA inlines functions. If a call has only tokens as operands, the inlining ends the process, or a
later pass fails. Ordered host calls of JAX's own fail, too. So `with_numbers` gives each of these
functions an unused number beside the token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.jaxlib_names import address, is_token

# Waits for all its tokens; a later op may still take each of them.
_JOIN = "stablehlo.after_all"
# Ops that run one of their regions, and once.
_BRANCHES = {"stablehlo.case", "stablehlo.if"}

_TWICE = (
    "this op and another take the same token, so that nothing orders the two; one of them has to "
    "take the token that the other returns"
)
_AGAIN = (
    "a token from outside of the region is taken in it again each time that it runs; it has to be "
    "an operand of '{}' and of the terminator"
)


def misuses(ops: Sequence[ir.Operation]) -> Iterator[tuple[ir.Operation, str]]:
    """Yield the ops that take a token wrongly, with the reason, from all ops of a module."""
    order = {address(op): number for number, op in enumerate(ops)}
    for op in ops:
        values = [*op.results]
        for region in op.regions:
            for block in region:
                values += block.arguments
        for value in values:
            if is_token(value.type):
                yield from _misuses_of(value, order)


def _misuses_of(token: ir.Value, order: dict[int, int]) -> Iterator[tuple[ir.Operation, str]]:
    users = {
        address(user): user for use in token.uses if (user := use.owner.operation).name != _JOIN
    }
    ordered = [users[key] for key in sorted(users, key=order.__getitem__)]
    taken: list[list[tuple[ir.Operation, ir.Block]]] = []
    for user in ordered:
        path = _path(user, _block_of(token))
        again = next((op for op, _ in path[:-1] if op.name not in _BRANCHES), None)
        if again is not None:
            yield user, _AGAIN.format(again.name)
        elif _only_waits(user):
            continue
        elif any(not _exclusive(path, other) for other in taken):
            yield user, _TWICE
        taken.append(path)


def _only_waits(op: ir.Operation) -> bool:
    """Return whether an op waits for its token, and nothing has to wait for the op."""
    if custom_calls.target_of(op) == custom_calls.RAISE:
        # The last failure of a program follows from its operand, with calls in loops and branches.
        return not any(True for result in op.results for _ in result.uses)
    return custom_calls.is_host_call(op) and not custom_calls.has_side_effect(op)


def _block_of(value: ir.Value) -> ir.Block:
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block


def _path(op: ir.Operation, block: ir.Block) -> list[tuple[ir.Operation, ir.Block]]:
    """Return the op and the ops around it up to `block`, outermost first, each with its block."""
    path = [(op, op.block)]
    while path[-1][1] != block:
        parent = path[-1][0].parent
        assert parent is not None, "a value is used in its own block or in regions within"
        path.append((parent.operation, parent.operation.block))
    return path[::-1]


def _exclusive(
    one: Sequence[tuple[ir.Operation, ir.Block]], other: Sequence[tuple[ir.Operation, ir.Block]]
) -> bool:
    """Return whether two paths lead into different branches of one op."""
    for (op, block), (other_op, other_block) in zip(one, other, strict=False):
        if block != other_block:
            return True
        if op != other_op:
            return False
    return False


def with_numbers(module: ir.Module) -> ir.Module | None:
    """Return a copy of a module without functions that take only tokens, None if XLA needs none."""
    if not private.FAILS_FOR_TOKENS_ALONE or not _taking_tokens(module):
        return None
    copy = private.copy_of(module)
    with copy.context, ir.Location.unknown():
        functions = _taking_tokens(copy)
        number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        for op in custom_calls.walk(copy):
            if traversal.callee_of(op) in functions:
                _give_number(op, number)
        for function in functions.values():
            _take_number(function, number)
    return copy


def _taking_tokens(module: ir.Module) -> dict[str, ir.Operation]:
    """Return the private functions that take only tokens."""
    found = {}
    for name, function in traversal.functions(module).items():
        types = traversal.type_of(function).inputs
        if types and all(map(private.is_token, types)) and traversal.is_private(function):
            found[name] = function
    return found


def _give_number(call: ir.Operation, number: ir.Type) -> None:
    with call.location, ir.InsertionPoint(call):
        new = ir.Operation.create(
            call.name,
            results=[result.type for result in call.results],
            operands=[*call.operands, custom_calls.constant(np.zeros((), np.int32), number)],
            attributes={name: call.attributes[name] for name in call.attributes},
        )
    traversal.replace(call, new.results)


def _take_number(function: ir.Operation, number: ir.Type) -> None:
    attributes = function.attributes
    type_ = traversal.type_of(function)
    traversal.set_type(function, [*type_.inputs, number], type_.results)
    if private.attribute_of(function, "arg_attrs") is not None:
        of_arguments = [*ir.ArrayAttr(attributes["arg_attrs"]), ir.DictAttr.get({})]
        attributes["arg_attrs"] = ir.ArrayAttr.get(of_arguments)
    function.regions[0].blocks[0].add_argument(number, function.location)
