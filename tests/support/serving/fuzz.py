"""Has the client of workers in C++ talk to workers that say what none should: `make sanitize`.

Usage: python -m tests.support.serving.fuzz SECONDS [THREADS [SEED]]
"""

import collections
import contextlib
import random
import sys
import tempfile

import numpy as np

from tests.support import fuzzing
from tests.support.serving.fake_worker import Mutator, random_argument
from tests.support.serving.native import module

GOOD = (1, [3], np.ones(3, np.float32).tobytes())


class Fuzzer:
    """Calls the client of the worker at a path."""

    def __init__(self, path: str, seed: int) -> None:
        self.codes = collections.Counter[int]()
        self._chance = random.Random(seed)
        self._client = module.Client({"HOSTCALL_WORKER_SOCKET": path})

    def step(self) -> None:
        given = [GOOD] * self._chance.randrange(3)
        if self._chance.random() < 0.1:
            given.append(random_argument(self._chance))
        code, message, results = self._client.call("PyFunc", b"token", given, [1, 7])
        assert (code == 0) == (not message and len(results) == 2)
        self.codes[code] += 1


def main(seconds: float, threads: int = 4, seed: int | None = None) -> int:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as workers:

        def make(seed: int) -> Fuzzer:
            return Fuzzer(workers.enter_context(Mutator(f"{folder}/{seed}", seed)).path, seed)

        return int(not fuzzing.run(make, seconds, threads, seed))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
