"""The throughput of 8 threads that call one compiled function, beside 1 thread."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import tensorflow as tf

import hostcall
from benchmarks import native_programs
from benchmarks.report import Row, alone, at_most, beside
from benchmarks.steps import (
    add_one,
    add_one_to_tensor,
    bare,
    compiled,
    eager_step,
    in_graph,
    numpy_step,
)
from benchmarks.timing import FULL, Effort, Run, Samples, measure

TITLE = "One call, where 1 thread or 8 make them, on 4 floats"
THREADS = 8
CALLS = 1600
ARRAY_OP = "compiled numpy_function"
BOUND = "hostcall.bind, numpy_function"
LIMIT = "least call of Python"  # from a compiled program
NONE, GRAPH, BARE = "no callback", "graph mode numpy_function", "bare call and copy"


def shared(run: Run, calls: int, threads: int, pool: ThreadPoolExecutor) -> Run:
    """Return a run that makes the calls, an equal part in each of the threads."""

    def part() -> None:
        for _ in range(calls // threads):
            run()

    def program() -> None:
        for future in [pool.submit(part) for _ in range(threads)]:
            future.result()

    return program


def main(effort: Effort = FULL) -> list[Row]:
    array = np.zeros(4, np.float32)
    x = tf.constant(array)
    count = effort.of(CALLS // THREADS) * THREADS
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(THREADS) as pool:
        calls: dict[str, Callable[[], object]] = {
            ARRAY_OP: compiled(numpy_step(add_one), x),
            BOUND: partial(hostcall.bind(numpy_step(add_one), x), x),
            "compiled py_function": compiled(eager_step(add_one_to_tensor), x),
            LIMIT: compiled(native_programs.least_step(add_one, folder), x),
            NONE: compiled(lambda v: v + 1.0, x),
            GRAPH: in_graph(numpy_step(add_one), x),
            BARE: lambda: bare(add_one, array),
        }
        programs = {
            f"{name}, {label}": shared(run, count, threads, pool)
            for name, run in calls.items()
            for threads, label in ((1, "1 thread"), (THREADS, "8 threads"))
        }
        samples = {key: value.per(count) for key, value in measure(programs, effort).items()}
    return [row for name in calls for row in rows_of(name, samples)]


def rows_of(name: str, samples: dict[str, Samples]) -> list[Row]:
    one, many = f"{name}, 1 thread", f"{name}, 8 threads"
    goal = None if name in (LIMIT, NONE, GRAPH, BARE) else at_most(1.1 if name == BOUND else 1.5)
    rows = [alone(one, samples[one]), beside(samples, many, one, goal)]
    if name == ARRAY_OP:
        rows.append(beside(samples, many, f"{LIMIT}, 8 threads"))
    return rows
