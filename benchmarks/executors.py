"""The cost of a call on an executor, and the throughput of two processes beside one."""

import concurrent.futures
import contextlib
import functools
import multiprocessing

import distributed
import loky
import numpy as np
import tensorflow as tf

import hostcall
from benchmarks.executor_functions import collatz, identity
from benchmarks.report import Row, alone, at_least, at_most, beside
from benchmarks.timing import FULL, Effort, measure

TITLE = "One call on an executor"

SIZES = {"4 floats": 4, "4 MiB": 1 << 20}

# Calls of pure Python, each of about 10 ms.
CALLS, STARTS = 8, 2400


def main(effort: Effort = FULL) -> list[Row]:
    with contextlib.ExitStack() as stack:
        executors = {name: stack.enter_context(make()) for name, make in EXECUTORS.items()}
        rows = _overhead(executors, effort)
        rows += _processes(stack, effort)
    return rows


def _overhead(executors, effort: Effort) -> list[Row]:
    programs = {}
    for size, count in SIZES.items():
        x = tf.ones([effort.of(count)])
        programs[f"in the process, {size}"] = _compiled(x)
        for name, executor in executors.items():
            programs[f"{name}, {size}"] = _compiled(x, executor=executor)
            programs[f"{name}, bare submit, {size}"] = _bare(executor, x.numpy())
    samples = measure(programs, effort)
    rows = []
    for size in SIZES:
        here = f"in the process, {size}"
        rows.append(alone(here, samples[here]))
        for name in executors:
            ours, bare = f"{name}, {size}", f"{name}, bare submit, {size}"
            goal = at_most(0.3) if name in LOCAL and size == "4 MiB" else None
            rows.append(alone(bare, samples[bare]))
            rows += [beside(samples, ours, bare, goal), beside(samples, ours, here)]
    return rows


def _processes(stack, effort: Effort) -> list[Row]:
    """Measure 8 calls of pure Python by 1 process, and by 2, beside the same pool's own map."""
    starts = np.arange(1.0, 1.0 + CALLS * effort.of(STARTS), dtype=np.float32)
    programs = {}
    for count in (2, 1):
        pool = stack.enter_context(_processes_of(count))
        name = f"{CALLS} calls of pure Python, {count} process{'es' * (count > 1)}"
        mapped = hostcall.map(collatz, executor=pool, chunks=CALLS)
        programs[name] = _run(mapped, tf.constant(starts))
        programs[f"{name}, bare map"] = functools.partial(_bare_map, pool, starts)
    samples = measure(programs, effort)
    two, bare, one, _ = programs
    return [
        alone(bare, samples[bare]),
        beside(samples, two, bare, at_most(1.05)),
        beside(samples, one, two, at_least(1.7)),
    ]


def _bare_map(pool, starts):
    return np.concatenate([*pool.map(collatz, np.split(starts, CALLS))])


def _compiled(x, **how):
    return _run(identity, x, stateful=False, **how)


def _run(function, x, **how):
    callback = hostcall.callback(function, result=lambda x: x, **how)
    return functools.partial(tf.function(lambda x: callback(x), jit_compile=True), x)


def _bare(executor, x):
    return lambda: executor.submit(identity, x).result()


def _processes_of(count: int):
    context = multiprocessing.get_context("forkserver")
    return concurrent.futures.ProcessPoolExecutor(count, mp_context=context)


@contextlib.contextmanager
def _dask():
    how = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**how) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor(pure=False)


LOCAL = ("1 process", "loky")
EXECUTORS = {
    "1 thread": lambda: concurrent.futures.ThreadPoolExecutor(1),
    "1 process": lambda: _processes_of(1),
    "loky": lambda: loky.ProcessPoolExecutor(1),
    "Dask": _dask,
}
