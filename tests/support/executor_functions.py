"""What other processes run for the tests of executors; without TensorFlow, which takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

calls: list[float] = []


class SimulatorError(ValueError):
    """Of a user's, with an attribute."""

    def __init__(self, sensor: int) -> None:
        super().__init__(sensor)
        self.sensor = sensor


def doubled(x: Any) -> Any:
    return x * 2


def place(x: Any) -> Any:
    """The process, whether TensorFlow is in it, and the argument."""
    return np.array([os.getpid(), "tensorflow" in sys.modules, x.sum()], np.float64)


def sums(pair: Any) -> Any:
    return {"sum": pair["a"] + pair["b"], "difference": pair["a"] - pair["b"]}


def scaled(x: Any, factor: float = 1.0) -> Any:
    return x * np.float32(factor)


def counted(x: Any) -> Any:
    """Writes its argument down, and returns how many calls this worker has had."""
    calls.append(float(x))
    return np.float32(len(calls))


def journal(x: Any) -> Any:
    return np.array(calls, np.float32)


def fails(x: Any) -> Any:
    raise SimulatorError(int(x))


def wrong_shape(x: Any) -> Any:
    return np.zeros(7, np.float32)


def ends(x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def returns_a_lock(x: Any) -> Any:
    return threading.Lock()


def lasts(x: Any) -> Any:
    time.sleep(float(x))
    return x
