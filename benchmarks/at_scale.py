"""Many programs of several devices that call one executor of Dask's, for minutes.

`python -m benchmarks.at_scale --minutes 10` prints a line for each minute: the calls a second,
beside those of Dask's own `submit`, and the memory of all processes. In the middle a worker is
killed. It exits with 0 if each result was right, no call was lost, and the memory stayed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import threading
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import dask
import distributed
import jax
import numpy as np
import psutil

import hostcall.jax

PROGRAMS, DEVICES, WORKERS, SIZE = 64, 8, 2, 1024
SECONDS_OF_WORK = 0.002
MEBI = 2**20
MORE_MEMORY = 1.15  # the most that the last minute may have, of what the second one had


def work(x: Any) -> Any:
    """Compute for two milliseconds, and return twice the argument."""
    end = time.process_time() + SECONDS_OF_WORK
    while time.process_time() < end:
        pass
    return x * 2


class Programs:
    """Compiled programs, each called by a thread of its own until all are told to end."""

    def __init__(self, executor: Any) -> None:
        self.runs, self.wrong = itertools.count(), itertools.count()
        self.errors: list[BaseException] = []
        self.goes_on = threading.Event()
        self.ends = threading.Event()
        mesh = jax.make_mesh((DEVICES,), ("x",))
        self._by_rows = jax.sharding.NamedSharding(mesh, jax.P("x"))
        self.threads = [
            threading.Thread(target=self._call, args=(self._program(executor, n), n))
            for n in range(PROGRAMS)
        ]

    def _program(self, executor: Any, number: int) -> Any:
        def program(x: Any) -> Any:
            y = hostcall.jax.call(
                work, x, x, pure=True, retries=3, executor=executor, sharding=self._by_rows
            )
            return y + number

        return jax.jit(program)

    def _call(self, program: Any, number: int) -> None:
        x = jax.device_put(np.full(SIZE * DEVICES, number, np.float32), self._by_rows)
        while not self.ends.is_set():
            self.goes_on.wait()
            try:
                if not (np.asarray(program(x)) == 3 * number).all():
                    next(self.wrong)
            except BaseException as error:
                self.errors.append(error)
                return
            next(self.runs)


def count_of(counter: Any) -> int:
    """Return how often a counter was used."""
    return int(repr(counter)[len("count(") : -1])


def submitted(client: Any, seconds: float) -> float:
    """Return the calls a second that Dask makes of the function by itself, 64 at a time."""
    x, end, done = np.ones(SIZE, np.float32), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        futures = [client.submit(work, x, pure=False) for _ in range(PROGRAMS)]
        client.gather(futures)
        done += len(futures)
    return done / seconds


def memory() -> float:
    """Return the MiB of this process and its children."""
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:  # a worker that was killed
            continue
    return total / MEBI


def kill_a_worker(cluster: Any) -> None:
    worker = next(iter(cluster.workers.values()))
    os.kill(worker.process.process.pid, signal.SIGKILL)
    print("a worker was killed", flush=True)


def main(minutes: int, seconds: float = 60.0) -> int:
    """Run the programs; return the exit status."""
    # Dask keeps the last 100,000 steps of its tasks, by default, which takes longer than a run.
    dask.config.set({"distributed.admin.low-level-log-length": 1000})
    with (
        distributed.LocalCluster(WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        programs = Programs(client.get_executor(pure=False))
        for thread in programs.threads:
            thread.start()
        used = []
        for minute in range(minutes):
            bare = submitted(client, seconds / 4)
            before, start = count_of(programs.runs), time.monotonic()
            programs.goes_on.set()
            if minute == minutes // 2:
                kill_a_worker(cluster)
            programs.ends.wait(seconds * 3 / 4)
            rate = (count_of(programs.runs) - before) * DEVICES / (time.monotonic() - start)
            used.append(memory())
            programs.goes_on.clear()
            alive = sum(thread.is_alive() for thread in programs.threads)
            print(
                f"minute {minute + 1}: {rate:.0f} calls a second, by submit alone {bare:.0f} "
                f"({rate / bare:.2f}); {used[-1]:.0f} MiB; {alive} programs",
                flush=True,
            )
        programs.ends.set()
        programs.goes_on.set()
        for thread in programs.threads:
            thread.join()
    for error in programs.errors[:3]:
        print(error)
    wrong = count_of(programs.wrong)
    print(f"{count_of(programs.runs)} runs, {wrong} wrong, {len(programs.errors)} failed")
    grew = used[-1] > used[min(1, len(used) - 1)] * MORE_MEMORY
    return int(bool(wrong or programs.errors or grew))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each minute")
    given = parser.parse_args()
    sys.exit(main(given.minutes, given.seconds))
