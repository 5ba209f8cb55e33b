"""Run by test_frames_array_memory.py: a process that forks while a callback's array is kept.

In a process of its own: other libraries of the tests' process warn of forks.
"""

import os

import numpy as np

from tests.support.native.frames import Buffer, Target, call

SIZE = 300_000  # floats


def given(array: np.ndarray) -> np.ndarray:
    """The argument that a callback is given for the array, which it keeps."""
    kept: list[np.ndarray] = []
    assert call(Target(kept.append), [Buffer.of(array)]).code == 0
    return kept[0]


def main() -> None:
    first, second = (np.random.default_rng(seed).random(SIZE, np.float32) for seed in range(2))
    array = given(first)
    child = os.fork()
    same = np.array_equal(array, first) and np.array_equal(given(second), second)
    if child == 0:
        os._exit(0 if same else 1)
    assert same
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


main()
