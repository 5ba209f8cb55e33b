"""Which ops of a block run on the device together, and which on the host between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import address


@dataclass(frozen=True)
class Step:
    """A cluster, and what runs on the host behind it, each in the order of the program."""

    cluster: list[ir.Operation]
    host: list[ir.Operation]


def schedule(ops: Sequence[ir.Operation], host: Collection[int]) -> list[Step]:
    """Assigns the ops of a block to as few clusters as data allow.

    A device op is in the cluster behind the last host op that it waits for, directly or not; a host
    op comes behind the last cluster that it waits for. So there are as many clusters as on the
    longest way through the block, and nothing could do with fewer. What needs no value at all, such
    as a large constant, goes where it is used first.

    Args:
      ops: those of the block, without its terminator.
      host: the addresses of those that run on the host; may hold others, too.

    Returns:
      The steps. The first may have an empty cluster.
    """
    keys = [address(op) for op in ops]
    level: dict[int, int] = {}
    waits: dict[int, list[int]] = {}
    for key, op in zip(keys, ops, strict=True):
        waits[key] = [before for before in definers(op) if before in level]
        if key in host:
            level[key] = max((level[before] for before in waits[key]), default=0)
        else:
            level[key] = max((level[b] + (b in host) for b in waits[key]), default=1)
    free = [
        key
        for key, op in zip(keys, ops, strict=True)
        if key not in host and not waits[key] and not op.regions and not op.operands
    ]
    _sink(free, level, waits)
    steps = [Step([], []) for _ in range(max(level.values(), default=0) + 1)]
    for key, op in zip(keys, ops, strict=True):
        step = steps[level[key]]
        (step.host if key in host else step.cluster).append(op)
    return [step for step in steps if step.cluster or step.host]


def definers(op: ir.Operation) -> set[int]:
    """The addresses of the ops whose results the op or its regions use, some within those."""
    owners = (operand.owner for inner in custom_calls.walk(op) for operand in inner.operands)
    return {address(owner.operation) for owner in owners if not isinstance(owner, ir.Block)}


def _sink(free: Sequence[int], level: dict[int, int], waits: dict[int, list[int]]) -> None:
    """Moves the ops in `free`, which wait for nothing, to the first cluster that needs them."""
    last = max(level.values(), default=0)
    first_use: dict[int, int] = {}
    for key, befores in waits.items():
        for before in befores:
            first_use[before] = min(first_use.get(before, last), max(level[key], 1))
    for key in free:
        level[key] = first_use.get(key, last)
