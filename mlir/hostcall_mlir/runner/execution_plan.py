"""What a partitioned program's @main says to do, as steps that run without MLIR.

Each array of the program has a slot, a number, in a list that a run fills. The regions of loops and
branches use the slots of what is around them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.runner import standalone
from hostcall_mlir.runner.steps import Block, Branch, Cluster, HostCall, Loop, Slots, Step


@dataclass(frozen=True)
class Plan:
    """A program's steps.

    Attributes:
      block: those of @main.
      slots: how many slots there are.
    """

    block: Block
    slots: int

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """What @main returns for arrays on the device."""
        slots: Slots = [None] * self.slots
        for slot, array in zip(self.block.arguments, arrays, strict=True):
            slots[slot] = array
        return self.block.run(slots)


def make_plan(module: ir.Module, device: jax.Device, host: jax.Device) -> Plan:
    """The plan of what `hostcall-partition` has made, with each part compiled.

    Args:
      module: its host calls have callback ids.
      device: the one that clusters run on.
      host: one of JAX's CPUs.

    Raises:
      RuntimeError: when XLA cannot compile a part.
    """
    functions = side_effects.functions(module)
    planner = _Planner(functions, device, host)
    block = planner.block(functions["main"].regions[0].blocks[0])
    return Plan(block, planner.slots)


class _Planner:
    def __init__(
        self, functions: Mapping[str, ir.Operation], device: jax.Device, host: jax.Device
    ) -> None:
        self.slots = 0
        self._functions = functions
        self._device = device
        self._host = host
        self._places: dict[ir.Value, list[int]] = {}
        self._executables: dict[tuple[bytes, jax.Device], Any] = {}

    def block(self, block: ir.Block) -> Block:
        arguments = self._new(block.arguments)
        *ops, terminator = [op.operation for op in block]
        steps = [step for op in ops if (step := self._step(op)) is not None]
        return Block(arguments, steps, self._of(terminator.operands))

    def _step(self, op: ir.Operation) -> Step | None:
        """What an op does; None where it only says which arrays are which."""
        if (callee := side_effects.callee_of(op)) is not None:
            program = standalone.cluster(self._functions, callee)
            executable = self._compiled(program, self._device, calls=False)
            return Cluster(executable, self._of(op.operands), self._new(op.results))
        if custom_calls.is_host_call(op):
            operands, results = self._of(op.operands), self._new(op.results)
            executable = self._compiled(standalone.host_call(op), self._host, calls=True)
            return HostCall(executable, self._host, self._device, operands, results)
        if op.name == "stablehlo.while":
            condition, body = (self.block(region.blocks[0]) for region in op.regions)
            return Loop(condition, body, self._of(op.operands), self._new(op.results))
        if op.name in ("stablehlo.if", "stablehlo.case"):
            branches = [self.block(region.blocks[0]) for region in op.regions]
            if op.name == "stablehlo.if":  # the first where it is true, as case would have it last
                branches.reverse()
            (index,) = self._of(op.operands)
            return Branch(index, branches, self._new(op.results))
        self._join(op)
        return None

    def _join(self, op: ir.Operation) -> None:
        """Gives the results of an op that only moves values the slots that those have."""
        places = self._of(op.operands)
        if op.name == "stablehlo.get_tuple_element":
            index = ir.IntegerAttr(op.attributes["index"]).value
            tuple_ = ir.TupleType(op.operands[0].type)
            widths = [standalone.width(tuple_.get_type(i)) for i in range(index + 1)]
            *_, start, end = accumulate(widths, initial=0)
            places = places[start:end]
        (result,) = op.results
        assert len(places) == standalone.width(result.type), f"nobody knows what {op.name} does"
        self._places[result] = places

    def _compiled(self, program: ir.Module, device: jax.Device, calls: bool) -> Any:
        """An executable; parts that are the same, as those of an unrolled loop, share one."""
        code = private.bytecode_of(program)
        key = hashlib.sha256(code).digest(), device
        if key not in self._executables:
            self._executables[key] = private.compile_for(code, device, calls)
        return self._executables[key]

    def _new(self, values: Sequence[ir.Value]) -> list[int]:
        """New slots for values."""
        first = self.slots
        for value in values:
            count = standalone.width(value.type)
            self._places[value] = [*range(self.slots, self.slots + count)]
            self.slots += count
        return [*range(first, self.slots)]

    def _of(self, values: Sequence[ir.Value]) -> list[int]:
        return [slot for value in values for slot in self._places[value]]
