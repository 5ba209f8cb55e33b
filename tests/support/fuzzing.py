"""Fuzzers on several threads until a time is up; `make sanitize` runs them.

A crash ends the process. A call that ends in another way than it must is reported with its seed.
One thread and the same seed make the same calls again.
"""
# ruff: noqa: T201 - it prints its report

import collections
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Protocol


class Fuzzer(Protocol):
    """Makes random calls, and counts the codes with which they end."""

    codes: collections.Counter[int]

    def step(self) -> None: ...


class _Thread(threading.Thread):
    """Makes calls until the time is up or one of them goes wrong."""

    def __init__(self, fuzzer: Fuzzer, seed: int, end: float) -> None:
        super().__init__(daemon=True)
        self.fuzzer, self.seed, self.end = fuzzer, seed, end
        self.failure = ""

    def run(self) -> None:
        try:
            while time.monotonic() < self.end:
                self.fuzzer.step()
        except BaseException:
            self.failure = f"seed {self.seed}: {traceback.format_exc()}"


def run(make: Callable[[int], Fuzzer], seconds: float, threads: int, seed: int | None) -> bool:
    """Runs fuzzers made of seeds, prints what they did, and returns whether all went well."""
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    print(f"{threads} threads for {seconds:g} s, seeds from {seed} on", flush=True)
    end = time.monotonic() + seconds
    workers = [_Thread(make(seed + index), seed + index, end) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 120)  # far longer than any call takes: a hang
    hung = sum(worker.is_alive() for worker in workers)
    failures = [worker.failure for worker in workers if worker.failure]
    codes = sum((worker.fuzzer.codes for worker in workers), collections.Counter[int]())
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{codes.total()} calls: {dict(sorted(codes.items()))} by code")
    print(f"{len(failures)} failures, {hung} hung threads")
    return not failures and not hung and codes[0] > 0
