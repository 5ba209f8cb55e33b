"""Calls the handler with random frames for a while; run by `make fuzz` under a sanitizer.

Usage: python -m tests.support.native.fuzz SECONDS [THREADS [SEED]]

A crash ends the process. A call that ends in another way than it must is reported with its seed,
and the exit status is 1. One thread and the same seed make the same calls again.
"""
# ruff: noqa: T201 - it prints its report

import collections
import random
import sys
import threading
import time
import traceback
import warnings

from tests.support.native.frames import DRIVER, native, runtime
from tests.support.native.random_frames import Fuzzer


class Worker(threading.Thread):
    """Makes calls until the time is up or one of them goes wrong."""

    def __init__(self, seed: int, end: float) -> None:
        super().__init__(daemon=True)
        self.seed = seed
        self.end = end
        self.fuzzer = Fuzzer(seed)
        self.failure = ""

    def run(self) -> None:
        """Make steps of the fuzzer until the time is up, and keep an error as the failure."""
        try:
            while time.monotonic() < self.end:
                self.fuzzer.step()
        except BaseException:
            self.failure = f"seed {self.seed}: {traceback.format_exc()}"


def main(seconds: float, threads: int = 8, seed: int | None = None) -> int:
    """Runs the fuzzer, prints what it did, and returns the exit status."""
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    sys.setswitchinterval(1e-4)
    runtime.load_cuda_driver(str(DRIVER))
    # NumPy warns of random numbers that do not fit the element type of a random pair.
    warnings.simplefilter("ignore", RuntimeWarning)
    print(f"{threads} threads for {seconds:g} s, seeds from {seed} on", flush=True)
    end = time.monotonic() + seconds
    workers = [Worker(seed + index, end) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        # Far longer than any call takes: a hang.
        worker.join(seconds + 120)
    hung = sum(worker.is_alive() for worker in workers)
    failures = [worker.failure for worker in workers if worker.failure]
    calls = sum(worker.fuzzer.calls for worker in workers)
    errors = collections.Counter[int]()
    for worker in workers:
        errors.update(worker.fuzzer.errors)
    left = native.live_objects() + runtime.count_early_calls()
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{calls} calls, {errors.total()} of them errors: {dict(sorted(errors.items()))} by code")
    print(
        f"{len(failures)} failures, {hung} hung threads, {left} errors, futures and calls left over"
    )
    return int(bool(failures or hung or left or not calls))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
