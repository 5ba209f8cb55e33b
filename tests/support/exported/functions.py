"""Functions that the exported programs of the tests call."""

import time
from typing import Any, NamedTuple

import numpy as np

LOG: list[Any] = []


class Pair(NamedTuple):
    one: Any
    other: Any


class Scaler:
    @staticmethod
    def twice(x: np.ndarray) -> np.ndarray:
        return x * np.asarray(2, x.dtype)


class Callback:
    """As objects of `hostcall.callback` look to those who do not know them."""

    def __init__(self, function: Any) -> None:
        self.__hostcall_function__ = function

    def __call__(self, *args: Any) -> Any:
        raise AssertionError("the function itself is to be called")


def triple(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * np.asarray(3, x.dtype), x.dtype)


def triple_in_place(x: np.ndarray) -> np.ndarray:
    x *= 3
    return x


def plus(x: np.ndarray, y: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return x + y


def scaled(x: np.ndarray, factor: float = 2.0, *, shift: Any = 0.0, how: str = "up") -> Any:
    assert type(factor) is float
    return np.asarray(x * factor + (shift if how == "up" else -shift), x.dtype)


def log(x: np.ndarray) -> None:
    LOG.append(np.asarray(x).tolist())


def next_number(x: np.ndarray) -> np.ndarray:
    """Adds to the log, and returns how long it is, so that the order of calls shows."""
    LOG.append(np.asarray(x).tolist())
    return np.asarray(x + np.asarray(len(LOG), x.dtype), x.dtype)


def both(x: np.ndarray) -> Any:
    return x, -x


def positive(x: np.ndarray) -> np.ndarray:
    return x[x > 0]


def corner(x: np.ndarray) -> np.ndarray:
    return x[:2, :3]


def total(x: np.ndarray) -> np.ndarray:
    LOG.append(x.shape)
    return x.sum(dtype=x.dtype)


def fail(x: np.ndarray) -> np.ndarray:
    raise KeyError("no such thing")


def wrong_dtype(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.int16)


def wrong_shape(x: np.ndarray) -> np.ndarray:
    return np.zeros(7, x.dtype)


def nothing(x: np.ndarray) -> None:
    return None


def write_out(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = x + 1


def write_both(x: np.ndarray, out: Any) -> Any:
    out["a"][...] = x + 1
    out["b"][...] = x - 1


def forget_out(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return x + 1


def is_read_only(x: np.ndarray) -> np.ndarray:
    return np.asarray(not x.flags.writeable)


def sleep(x: np.ndarray) -> np.ndarray:
    time.sleep(60)
    return x


def interrupt(x: np.ndarray) -> np.ndarray:
    raise KeyboardInterrupt


MARKED = Callback(triple)
NUMBER = 3
