"""Functions that the exported programs of the tests call."""

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


MARKED = Callback(triple)
NUMBER = 3
