"""Functions that the workers of the tests call."""

import os
import threading
from typing import Any

import numpy as np

kept: list[Any] = []

_met = threading.Barrier(4)


def identity(*arrays: Any) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


def double(x: Any) -> Any:
    return x * 2


def ones(count: Any) -> Any:
    return np.ones(count, np.float32)


def fail(x: Any) -> Any:
    raise ValueError("no such sensor")


def fail_otherwise(x: Any) -> Any:
    raise NotImplementedError("not yet")


def leave(x: Any) -> Any:
    raise SystemExit(3)


def long_error(x: Any) -> Any:
    raise ValueError("long " * 100_000)


def another_dtype(x: Any) -> Any:
    return np.float64(1)


def keep(x: Any) -> Any:
    kept.append(x)
    return np.float32(sum(map(np.sum, kept)))


def overwrite(x: Any) -> Any:
    x = np.asarray(x)
    if x.flags.writeable:
        x[...] = 7
    return x


def meet(x: Any) -> Any:
    """Returns once four threads are in it."""
    _met.wait(60)
    return x


def hold(begun: bytes, release: bytes) -> Any:
    """Tells that it has begun by one FIFO, and ends when the other one is closed."""
    with open(begun, "wb"):
        pass
    with open(release, "rb") as fifo:
        fifo.read()
    return np.int32(os.getpid())


def pid() -> Any:
    return np.int32(os.getpid())


def die() -> None:
    os.kill(os.getpid(), 9)
