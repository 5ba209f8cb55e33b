"""Pools of processes for tests of executors, which end with the module that makes them."""

import concurrent.futures
import multiprocessing
from typing import Any

# In the order of their making.
made: list[concurrent.futures.Executor] = []


def one_process(method: str = "forkserver", workers: int = 1) -> Any:
    """One worker, so that tests know which process runs a call."""
    context = multiprocessing.get_context(method)
    made.append(concurrent.futures.ProcessPoolExecutor(workers, mp_context=context))
    return made[-1]


def two_processes() -> Any:
    return one_process(workers=2)


def end_pools() -> None:
    while made:
        made.pop().shutdown(cancel_futures=True)
