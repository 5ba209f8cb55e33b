"""Pools of processes for tests of executors, which end with the module that makes them."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import threading
from collections.abc import MutableMapping
from typing import Any

from tests.support.threads import PATIENCE

# In the order of their making.
made: list[concurrent.futures.ProcessPoolExecutor] = []


def one_process() -> concurrent.futures.ProcessPoolExecutor:
    """One worker, so that tests know which process runs a call."""
    return _pool(1)


def two_processes() -> concurrent.futures.ProcessPoolExecutor:
    """Two workers."""
    return _pool(2)


def late_worker() -> concurrent.futures.ProcessPoolExecutor:
    """Two workers; the second of them becomes known while the pool ends the first, which has died.

    Python before 3.12 has that gap between a call that is taken and a pool that breaks.
    """
    return _pool(2, _LateWorker)


def end_pools() -> None:
    """Ends all that were made."""
    while made:
        made.pop().shutdown(cancel_futures=True)


def _pool(
    workers: int,
    kind: type[concurrent.futures.ProcessPoolExecutor] = concurrent.futures.ProcessPoolExecutor,
) -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    made.append(kind(workers, mp_context=context))
    return made[-1]


class _LateWorker(concurrent.futures.ProcessPoolExecutor):
    _processes: MutableMapping[int, Any]

    def _spawn_process(self) -> None:
        if not self._processes:
            self._first_is_being_ended, self._second_is_known = threading.Event(), threading.Event()
            super()._spawn_process()  # type: ignore[misc]
            (first,) = self._processes.values()
            terminate = first.terminate

            def terminate_when_second_is_known() -> None:
                self._first_is_being_ended.set()
                self._second_is_known.wait(PATIENCE)
                terminate()

            first.terminate = terminate_when_second_is_known
        else:
            self._first_is_being_ended.wait(PATIENCE)
            super()._spawn_process()  # type: ignore[misc]
            self._second_is_known.set()
