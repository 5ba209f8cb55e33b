"""Calls the handler with random frames for a while; run by `make sanitize`.

Usage: python -m tests.support.native.fuzz SECONDS [THREADS [SEED]]
"""
# ruff: noqa: T201 - it prints its report

import sys
import warnings

from tests.support import fuzzing
from tests.support.native.frames import DRIVER, native, runtime
from tests.support.native.random_frames import Fuzzer


def main(seconds: float, threads: int = 8, seed: int | None = None) -> int:
    sys.setswitchinterval(1e-4)
    runtime.load_cuda_driver(str(DRIVER))
    # NumPy warns of random numbers that do not fit the element type of a random pair.
    warnings.simplefilter("ignore", RuntimeWarning)
    went_well = fuzzing.run(Fuzzer, seconds, threads, seed)
    left = native.live_objects() + runtime.count_early_calls()
    print(f"{left} errors, futures and calls left over")
    return int(not went_well or left > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
