"""Pools of processes for tests of executors, which end with the module that makes them."""

import concurrent.futures
import multiprocessing

# In the order of their making.
made: list[concurrent.futures.ProcessPoolExecutor] = []


def one_process() -> concurrent.futures.ProcessPoolExecutor:
    """One worker, so that tests know which process runs a call."""
    return _pool(1)


def two_processes() -> concurrent.futures.ProcessPoolExecutor:
    return _pool(2)


def end_pools() -> None:
    while made:
        made.pop().shutdown(cancel_futures=True)


def _pool(workers: int) -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    made.append(concurrent.futures.ProcessPoolExecutor(workers, mp_context=context))
    return made[-1]
