"""Has the client of workers in C++ talk to workers that say what none should; run by `make fuzz`.

Usage: python -m tests.support.serving.fuzz SECONDS [THREADS [SEED]]

A crash ends the process. A call that ends in another way than it must is reported with its seed,
and the exit status is 1. One thread and the same seed make the same calls again.
"""
# ruff: noqa: T201 - it prints its report

import collections
import random
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

from tests.support.serving.fake_worker import Mutator, random_argument
from tests.support.serving.native import module


class Fuzzer(threading.Thread):
    """Makes calls until the time is up or one of them goes wrong."""

    def __init__(self, folder: str, seed: int, end: float) -> None:
        super().__init__(daemon=True)
        self.path = f"{folder}/{seed}"
        self.seed = seed
        self.end = end
        self.codes = collections.Counter[int]()
        self.failure = ""

    def run(self) -> None:
        """Make random calls until the time is up, and count the codes of their outcomes."""
        chance = random.Random(self.seed)
        good = (1, [3], np.ones(3, np.float32).tobytes())
        try:
            with Mutator(self.path, self.seed):
                client = module.Client({"HOSTCALL_WORKER_SOCKET": self.path})
                while time.monotonic() < self.end:
                    given = [good] * chance.randrange(3)
                    if chance.random() < 0.1:
                        given.append(random_argument(chance))
                    code, message, results = client.call("PyFunc", b"token", given, [1, 7])
                    assert (code == 0) == (not message and len(results) == 2)
                    self.codes[code] += 1
                del client
        except BaseException:
            self.failure = f"seed {self.seed}: {traceback.format_exc()}"


def main(seconds: float, threads: int = 4, seed: int | None = None) -> int:
    """Runs the fuzzers, prints what they did, and returns the exit status."""
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    print(f"{threads} clients of workers for {seconds:g} s, seeds from {seed} on", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        end = time.monotonic() + seconds
        fuzzers = [Fuzzer(folder, seed + index, end) for index in range(threads)]
        for fuzzer in fuzzers:
            fuzzer.start()
        for fuzzer in fuzzers:
            fuzzer.join(seconds + 120)  # far longer than any call takes: a hang
        hung = sum(fuzzer.is_alive() for fuzzer in fuzzers)
    failures = [fuzzer.failure for fuzzer in fuzzers if fuzzer.failure]
    codes = sum((fuzzer.codes for fuzzer in fuzzers), collections.Counter[int]())
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{codes.total()} calls: {dict(sorted(codes.items()))} by code")
    print(f"{len(failures)} failures, {hung} hung threads")
    return int(bool(failures or hung or not codes[0]))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
