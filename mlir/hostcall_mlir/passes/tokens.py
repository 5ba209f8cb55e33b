"""Tokens, values without content: a call takes that of the call before it, which orders the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxlib.mlir import ir

from hostcall_mlir.ir.jaxlib_names import address, is_token

# Waits for all its tokens, which takes none of them away from an op that comes later.
_JOIN = "stablehlo.after_all"
# One of their regions runs, and once.
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
    """The ops that take a token which they should not, and what is wrong with that.

    Args:
      ops: all ops of a module, in its order.
    """
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
        elif any(not _exclusive(path, other) for other in taken):
            yield user, _TWICE
        taken.append(path)


def _block_of(value: ir.Value) -> ir.Block:
    owner = value.owner
    return owner if isinstance(owner, ir.Block) else owner.operation.block


def _path(op: ir.Operation, block: ir.Block) -> list[tuple[ir.Operation, ir.Block]]:
    """The op and those around it up to `block`, the outermost first, each with its block."""
    path = [(op, op.block)]
    while path[-1][1] != block:
        parent = path[-1][0].parent
        assert parent is not None, "a value is used in its own block or in regions within"
        path.append((parent.operation, parent.operation.block))
    return path[::-1]


def _exclusive(
    one: Sequence[tuple[ir.Operation, ir.Block]], other: Sequence[tuple[ir.Operation, ir.Block]]
) -> bool:
    """Whether they are in different branches of one op."""
    for (op, block), (other_op, other_block) in zip(one, other, strict=False):
        if block != other_block:
            return True
        if op != other_op:
            return False
    return False
