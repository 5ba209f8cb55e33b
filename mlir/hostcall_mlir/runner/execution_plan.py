"""What a partitioned program's @main says to do, as steps that run without MLIR.

Each array of the program has a slot, a number, in a list that a run fills. The regions of loops and
branches use the slots of what is around them. A value that is on the device and on the host has
slots for both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import jax
from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls, side_effects
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.jaxlib_names import is_token
from hostcall_mlir.passes import transfers
from hostcall_mlir.runner import standalone
from hostcall_mlir.runner.steps import (
    Block,
    Branch,
    Cluster,
    HostCall,
    Loop,
    Slots,
    Step,
    Transfer,
)

# The slots of each value's arrays.
Places = dict[ir.Value, list[int]]


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
        # Where arrays are that are on the device, and on the host. Where that is one, so are these.
        self._on_device: Places = {}
        self._on_host: Places = self._on_device if device == host else {}
        self._executables: dict[tuple[bytes, jax.Device], Any] = {}

    def block(self, block: ir.Block, is_condition: bool = False) -> Block:
        arguments = self._new(self._on_device, block.arguments)
        *ops, terminator = [op.operation for op in block]
        steps = [step for op in ops for step in self._steps(op)]
        if not is_condition:
            return Block(arguments, steps, self._of(self._on_device, terminator.operands))
        steps += self._to_host(terminator)
        return Block(arguments, steps, self._of(self._on_host, terminator.operands))

    def _steps(self, op: ir.Operation) -> list[Step]:
        """What an op does; nothing where it only says which arrays are which."""
        if (callee := side_effects.callee_of(op)) is not None:
            program = standalone.cluster(self._functions, callee)
            executable = self._compiled(program, self._device, calls=False)
            operands = self._of(self._on_device, op.operands)
            return [Cluster(executable, operands, self._new(self._on_device, op.results))]
        if custom_calls.is_host_call(op):
            executable = self._compiled(standalone.host_call(op), self._host, calls=True)
            before = self._to_host(op)
            operands = self._of(self._on_host, op.operands)
            call = HostCall(executable, operands, self._new(self._on_host, op.results))
            return [*before, call, *self._to_device(op)]
        if op.name == "stablehlo.while":
            operands = self._of(self._on_device, op.operands)
            condition = self.block(op.regions[0].blocks[0], is_condition=True)
            body = self.block(op.regions[1].blocks[0])
            return [Loop(condition, body, operands, self._new(self._on_device, op.results))]
        if op.name in ("stablehlo.if", "stablehlo.case"):
            before = self._to_host(op)
            (index,) = self._of(self._on_host, op.operands)
            branches = [self.block(region.blocks[0]) for region in op.regions]
            if op.name == "stablehlo.if":  # the first where it is true, as case would have it last
                branches.reverse()
            return [*before, Branch(index, branches, self._new(self._on_device, op.results))]
        self._join(op)
        return []

    def _to_host(self, op: ir.Operation) -> list[Step]:
        """The copies that an op needs on the host, as its mark says."""
        if self._on_host is self._on_device:
            return []
        marked = [op.operands[index] for index in transfers.marked(op, transfers.TO_HOST)]
        if not marked:
            return []
        operands = self._of(self._on_device, marked)
        return [Transfer(self._host, operands, self._new(self._on_host, marked))]

    def _to_device(self, op: ir.Operation) -> list[Step]:
        """The copies of a host call's results that the device needs, as its mark says."""
        if self._on_host is self._on_device:
            return []
        self._new(self._on_device, op.results)
        parts = zip(self._parts(self._on_host, op), self._parts(self._on_device, op), strict=True)
        marked = transfers.marked(op, transfers.TO_DEVICE)
        crossing = [part for index, part in enumerate(parts) if index in marked]
        if not crossing:
            return []
        sources = [slot for source, _ in crossing for slot in source]
        copies = [slot for _, copy in crossing for slot in copy]
        return [Transfer(self._device, sources, copies)]

    def _parts(self, places: Places, op: ir.Operation) -> list[list[int]]:
        """The slots of each of a host call's results; a tuple is taken apart."""
        slots = iter(self._of(places, op.results))
        types = custom_calls.result_types(op)
        return [[*islice(slots, standalone.width(type_))] for type_ in types]

    def _join(self, op: ir.Operation) -> None:
        """Gives the results of an op that only moves values the slots that those have."""
        (result,) = op.results
        for places in (self._on_device, self._on_host):
            if not all(is_token(value.type) or value in places for value in op.operands):
                continue  # they are on the other side
            slots = self._of(places, op.operands)
            if op.name == "stablehlo.get_tuple_element":
                index = ir.IntegerAttr(op.attributes["index"]).value
                tuple_ = ir.TupleType(op.operands[0].type)
                widths = [standalone.width(tuple_.get_type(i)) for i in range(index + 1)]
                *_, start, end = accumulate(widths, initial=0)
                slots = slots[start:end]
            assert len(slots) == standalone.width(result.type), f"nobody knows what {op.name} does"
            places[result] = slots

    def _compiled(self, program: ir.Module, device: jax.Device, calls: bool) -> Any:
        """An executable; parts that are the same, as those of an unrolled loop, share one."""
        code = private.bytecode_of(program)
        key = hashlib.sha256(code).digest(), device
        if key not in self._executables:
            self._executables[key] = private.compile_for(code, device, calls)
        return self._executables[key]

    def _new(self, places: Places, values: Sequence[ir.Value]) -> list[int]:
        """New slots for values."""
        first = self.slots
        for value in values:
            count = standalone.width(value.type)
            places[value] = [*range(self.slots, self.slots + count)]
            self.slots += count
        return [*range(first, self.slots)]

    def _of(self, places: Places, values: Sequence[ir.Value]) -> list[int]:
        # Tokens hold nothing, and are on both sides.
        return [slot for value in values if not is_token(value.type) for slot in places[value]]
