"""Calls that devices make together, with call frames made by hand."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from tests.support.native.frames import Buffer, Outcome, Target, attributes, call, runtime

JOINT = runtime.joint_handler()


class Devices:
    """Devices, each with a thread of its own, that make calls in the runs of programs."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)

    def close(self) -> None:
        self._pool.shutdown()

    def begin(
        self, target: Target, shard: int, value: Any, shards: int, devices: int, **how: Any
    ) -> Future[Outcome]:
        """A device comes to a call with one array, and takes one like it."""
        operands = [Buffer.of(np.int32(shard)), Buffer.of(value)]
        results = [Buffer.result(np.shape(value))]
        said = attributes(target, {"shards": shards, "devices": devices})
        return self._pool.submit(
            call, target, operands, results, entry=JOINT, said=said, foreign=True, **how
        )

    def meet(self, target: Target, values: Sequence[tuple[int, Any]], **how: Any) -> list[Outcome]:
        """Make one call on devices that have these shards and arrays, and return its outcomes."""
        shards = len({shard for shard, _ in values})
        begun = [self.begin(target, *value, shards, len(values), **how) for value in values]
        return [one.result() for one in begun]
