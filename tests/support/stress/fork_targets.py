"""Functions for processes of `multiprocessing`, which finds them by their module's name."""

import os
from typing import Any

import numpy as np


def load(seed: int) -> np.ndarray:
    """A data loader: NumPy, and nothing else."""
    return np.random.default_rng(seed).random([4, 4], np.float32) @ np.full([4, 4], 0.5, np.float32)


def load_into(queue: Any, seeds: Any) -> None:
    for seed in seeds:
        queue.put((os.getpid(), load(seed)))


def run_programs(queue: Any) -> None:
    from tests.stress import test_fork
    from tests.support.stress import child

    child.keep_tensorflow_quiet()
    test_fork.run_all()
    queue.put("right")
