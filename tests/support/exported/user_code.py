"""Python functions that exported programs call by their names; without TensorFlow."""

from typing import Any, NamedTuple

import numpy as np

seen: list[float] = []


class Pair(NamedTuple):
    first: Any
    second: Any


def sine(x: np.ndarray) -> np.ndarray:
    return np.sin(x)


def note(x: np.ndarray) -> None:
    """An effect that the tests can see."""
    seen.append(float(np.sum(x)))


def two(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x + y, x * y


def structured(pair: Any, table: dict[str, Any]) -> dict[str, Any]:
    return {"z": pair.first - pair.second, "a": [table["b"] + table["a"], (table["a"],)]}


def pairs(x: np.ndarray) -> Pair:
    return Pair(x + np.float32(1), x * np.float32(2))


def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


def negated(x: np.ndarray, *, out: np.ndarray) -> None:
    np.negative(x, out=out)


def half(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5)


def half_of_int4(x: np.ndarray) -> np.ndarray:
    assert x.dtype.name == "int4", x.dtype
    return (x.astype(np.int8) // 2).astype(x.dtype)


def flipped(x: np.ndarray) -> np.ndarray:
    """Numbers of any dtype in the other order."""
    note(x.astype(np.float32))
    return x[::-1]


def second(table: dict[str, Any]) -> np.ndarray:
    return table["pair"].second + table["more"][0]
