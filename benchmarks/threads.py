"""Do 8 threads that call one compiled function get through as many calls as 1?"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from benchmarks.programs import (
    add_one,
    add_one_to_tensor,
    bare,
    compiled,
    eager_step,
    in_graph,
    numpy_step,
)
from benchmarks.report import Row, alone, at_most, beside, show
from benchmarks.timing import FULL, Effort, Run, measure

TITLE = "One call, where 1 thread or 8 make them, on 4 floats"
THREADS = 8
CALLS = 1600
LIMIT = "C that calls Python"


def called_from_c() -> Callable[[], object]:
    """A call of a C function that calls a Python function once: qsort, of two elements.

    It lets go of the lock and takes it as often as a call of a compiled program does.
    """
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda _a, _b: 0)
    sort = ctypes.CDLL(None).qsort
    elements = (ctypes.c_int * 2)()
    count, size = ctypes.c_size_t(2), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    return lambda: sort(elements, count, size, compare)


def shared(run: Run, calls: int, threads: int, pool: ThreadPoolExecutor) -> Run:
    """Makes the calls, so many by each of the threads."""

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
    calls: dict[str, Callable[[], object]] = {
        "compiled numpy_function": compiled(numpy_step(add_one), x),
        "compiled py_function": compiled(eager_step(add_one_to_tensor), x),
        "no callback": compiled(lambda v: v + 1.0, x),
        "graph mode numpy_function": in_graph(numpy_step(add_one), x),
        "bare call and copy": lambda: bare(add_one, array),
        LIMIT: called_from_c(),
    }
    count = effort.of(CALLS // THREADS) * THREADS
    with ThreadPoolExecutor(THREADS) as pool:
        programs = {
            f"{name}, {label}": shared(run, count, threads, pool)
            for name, run in calls.items()
            for threads, label in ((1, "1 thread"), (THREADS, "8 threads"))
        }
        samples = {key: value.per(count) for key, value in measure(programs, effort).items()}
    rows = []
    for name in calls:
        one, many = f"{name}, 1 thread", f"{name}, 8 threads"
        goal = at_most(1) if "_function" in name and "compiled" in name else None
        rows += [alone(one, samples[one]), beside(samples, many, one, goal)]
    show(TITLE, rows)
    return rows


if __name__ == "__main__":
    main()
