"""Programs that go on while Python does: their calls belong to the block that started them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

# Of frameworks that are loaded: waits until what was started has ended, and raises its errors.
_waits: list[Callable[[], None]] = []


def add(wait: Callable[[], None]) -> None:
    """Has `wait_for_programs` call `wait`, too."""
    _waits.append(wait)


def wait_for_programs() -> None:
    """Waits until the programs that were started have made their calls."""
    for wait in _waits:
        wait()
    if (jax := sys.modules.get("jax")) is not None:
        # What a program without effects computes is told of by its results alone.
        for array in jax.live_arrays():
            with contextlib.suppress(Exception):  # which whoever reads them gets
                array.block_until_ready()
        jax.effects_barrier()
