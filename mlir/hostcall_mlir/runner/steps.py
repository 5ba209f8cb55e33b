"""Running partitioned programs: clusters on a device, and host calls between them.

For a host call the runner has a program of its own, of the call alone, on JAX's CPU. So whatever a
call does in a program that XLA runs as a whole, it does here: the function gets the same arrays,
its results are checked the same, and its errors are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.runner import array_conversion
from hostcall_runtime._starters import Program

# Host calls are programs of their own here, which run on the thread that starts them.
_HERE = Program(())

# The arrays of a run, by their slots.
Slots = list[Any]


class Step(Protocol):
    """Something that a program does."""

    def run(self, slots: Slots) -> None:
        """Does it, with arrays from slots, and puts what comes of it into others."""


@dataclass(frozen=True)
class Block:
    """Steps one after another; `arguments` are the slots that have to be filled before."""

    arguments: list[int]
    steps: list[Step]
    results: list[int]

    def run(self, slots: Slots) -> list[Any]:
        """Runs the steps, and returns the arrays that are the block's results."""
        for step in self.steps:
            step.run(slots)
        return [slots[slot] for slot in self.results]


@dataclass(frozen=True)
class Cluster:
    """What the device does between host calls."""

    executable: Any
    operands: list[int]
    results: list[int]

    def run(self, slots: Slots) -> None:
        """Starts it; the device may go on when this has returned."""
        arrays = [slots[slot] for slot in self.operands]
        _store(slots, self.results, private.execute(self.executable, arrays))


@dataclass(frozen=True)
class HostCall:
    """A call of a Python function: `executable` is a program of the call alone, for the host."""

    executable: Any
    operands: list[int]
    results: list[int]

    def run(self, slots: Slots) -> None:
        """Makes the call, and returns when it has ended."""
        arrays = [slots[slot] for slot in self.operands]
        _store(slots, self.results, private.execute_to_end(self.executable, arrays, _HERE))


@dataclass(frozen=True)
class Transfer:
    """Copies of arrays on the other side; `device` is where they go."""

    device: jax.Device
    operands: list[int]
    results: list[int]

    def run(self, slots: Slots) -> None:
        """Begins to copy; who uses a copy waits for it."""
        arrays = [array_conversion.put(slots[slot], self.device) for slot in self.operands]
        _store(slots, self.results, arrays)


@dataclass(frozen=True)
class Loop:
    """A `stablehlo.while`."""

    condition: Block
    body: Block
    operands: list[int]
    results: list[int]

    def run(self, slots: Slots) -> None:
        """Runs the body as long as the condition holds."""
        carried = [slots[slot] for slot in self.operands]
        while True:
            _store(slots, self.condition.arguments, carried)
            (goes_on,) = self.condition.run(slots)
            if not np.asarray(goes_on):
                break
            _store(slots, self.body.arguments, carried)
            carried = self.body.run(slots)
        _store(slots, self.results, carried)


@dataclass(frozen=True)
class Branch:
    """A `stablehlo.case`, or an `if`, whose branch for true is the last one here."""

    index: int
    branches: Sequence[Block]
    results: list[int]

    def run(self, slots: Slots) -> None:
        """Runs one of the branches; an index that none has means the last."""
        index = int(np.asarray(slots[self.index]))
        last = len(self.branches) - 1
        branch = self.branches[index if 0 <= index <= last else last]
        _store(slots, self.results, branch.run(slots))


def _store(slots: Slots, where: Sequence[int], arrays: Sequence[Any]) -> None:
    for slot, array in zip(where, arrays, strict=True):
        slots[slot] = array
