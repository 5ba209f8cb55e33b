"""Executors of all kinds, each with a single worker but for Dask, which has two."""

import concurrent.futures
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import loky
import numpy as np
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support import process_pools
from tests.support.helpers import jitted, plain

X = tf.constant([1.0, 2.0, 3.0])


def threads() -> Any:
    process_pools.made.append(concurrent.futures.ThreadPoolExecutor(1, "executor"))
    return process_pools.made[-1]


def spawn() -> Any:
    return process_pools.one_process("spawn")


def loky_pool() -> Any:
    return loky.get_reusable_executor(max_workers=1)


def on_dask() -> Any:
    return _client().get_executor(pure=False)


@functools.cache
def _client() -> Any:
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    return distributed.Client(cluster, set_as_default=False)


@contextmanager
def separate_cluster(folder: Path) -> Iterator[tuple[Any, Any, Any]]:
    """A client, and the processes of its scheduler and of a worker that nobody starts again."""
    file = str(folder / "scheduler.json")
    options = ["--scheduler-file", file, "--host", "127.0.0.1"]
    started = []
    for name, more in (
        ("dask_scheduler", ["--port", "0", "--dashboard-address", ":0"]),
        ("dask_worker", ["--nthreads", "1", "--no-nanny", "--no-dashboard"]),
    ):
        command = [sys.executable, "-m", f"distributed.cli.{name}", *options, *more]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        while not os.path.exists(file):
            time.sleep(0.01)
    # So many seconds it looks for the scheduler, also when that is gone.
    client = distributed.Client(scheduler_file=file, timeout=5, set_as_default=False)
    client.wait_for_workers(1, timeout=60)
    try:
        yield client, *started
    finally:
        for process in started:
            process.kill()
            process.wait()
        client.close()


KINDS: dict[str, Callable[[], Any]] = {
    "threads": threads,
    "spawn": spawn,
    "forkserver": process_pools.one_process,
    "loky": loky_pool,
    "dask": on_dask,
}


def on(executor: Any, function: Callable[..., Any], **how: Any) -> Any:
    return hostcall.callback(function, result=lambda x: x, executor=executor, **how)


def assert_next_call_works(kind: str) -> None:
    double = on(KINDS[kind], functions.doubled)
    for program in (jitted(double), plain(double), double):
        np.testing.assert_array_equal(program(X), 2.0 * X)


# Those whose workers are processes, and send functions by name, and by value.
BY_NAME = ["spawn", "forkserver"]
BY_VALUE = ["loky", "dask"]
OF_PROCESSES = ["forkserver", "loky", "dask"]


@contextmanager
def none_left() -> Iterator[None]:
    try:
        yield
    finally:
        process_pools.end_pools()
        close_dask()
        loky.get_reusable_executor().shutdown(kill_workers=True)


def close_dask() -> None:
    """Close the cluster, so that the next test has one whose workers all live.

    Dask starts a worker again that has ended, but on a busy machine it may give up.
    """
    if _client.cache_info().currsize:
        client = _client()
        cluster = client.cluster
        client.close()
        cluster.close()
        _client.cache_clear()
