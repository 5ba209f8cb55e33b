"""Arrays as inputs of kernels: the same ones for the same seed."""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

Shape = tuple[int, ...]


def ints(*values: Any) -> Any:
    """Return an array of int32: of one value, which may be a list, or of several."""
    return np.array(values[0] if len(values) == 1 else values, np.int32)


class Data:
    """Arrays of random numbers."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0

    def start(self, name: str) -> None:
        """Begin with what bears this name, which alone decides the numbers that follow."""
        self._count = zlib.crc32(name.encode())

    def normal(self, dtype: Any, *shape: int, scale: float = 2.0) -> Any:
        """Return numbers around zero; integers are small, so that few products overflow."""
        kind = tf.as_dtype(dtype)
        rng = self._rng()
        if kind.is_bool:
            return rng.integers(0, 2, shape).astype(bool)
        if kind.is_integer:
            low = 0 if kind.is_unsigned else -9
            return rng.integers(low, 10, shape).astype(kind.as_numpy_dtype)
        return _parts(kind, lambda: rng.normal(0, scale, shape))

    def positive(self, dtype: Any, *shape: int, low: float = 0.1, high: float = 4.0) -> Any:
        kind = tf.as_dtype(dtype)
        if kind.is_integer:
            return self._rng().integers(1, 10, shape).astype(kind.as_numpy_dtype)
        if kind.is_bool:
            return self.normal(dtype, *shape)
        return _parts(kind, lambda: self._rng().uniform(low, high, shape))

    def unit(self, dtype: Any, *shape: int, low: float = -0.95) -> Any:
        return _parts(tf.as_dtype(dtype), lambda: self._rng().uniform(low, 0.95, shape))

    def wide(self, dtype: Any, *shape: int) -> Any:
        """Return integers of the whole range, or numbers of many magnitudes."""
        kind = tf.as_dtype(dtype)
        rng = self._rng()
        if kind.is_bool:
            return self.normal(dtype, *shape)
        if kind.is_integer:
            info = np.iinfo(kind.as_numpy_dtype)
            values = rng.integers(info.min, info.max, shape, kind.as_numpy_dtype, endpoint=True)
            return np.asarray(values)
        sizes = np.exp(rng.uniform(-8, 8, shape)) * rng.choice([-1.0, 1.0], shape)
        return np.asarray(sizes).astype(kind.as_numpy_dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Any:
        kind = tf.as_dtype(dtype)
        return np.asarray(self._rng().integers(low, high, shape)).astype(kind.as_numpy_dtype)

    def permutation(self, count: int, dtype: Any = np.int32) -> Any:
        return self._rng().permutation(count).astype(tf.as_dtype(dtype).as_numpy_dtype)

    def _rng(self) -> np.random.Generator:
        self._count += 1
        return np.random.default_rng((self._seed, self._count))


def _parts(kind: tf.DType, draw: Callable[[], Any]) -> Any:
    """Return numbers of a dtype: of complex ones, both parts are drawn."""
    values = draw() + 1j * draw() if kind.is_complex else draw()
    return np.asarray(values).astype(kind.as_numpy_dtype)


@functools.cache
def special(dtype: Any) -> Any:
    """Return numbers at the edges of a dtype, and some common ones among them."""
    kind = tf.as_dtype(dtype)
    numpy: Any = kind.as_numpy_dtype
    if kind.is_bool:
        return np.array([True, False])
    if kind.is_integer:
        low, high = int(kind.min), int(kind.max)
        numbers = {low, low + 1, high, high - 1, high // 2, low // 2, 0, 1, 2, 3, 5, 7, 8, 100}
        numbers |= set() if kind.is_unsigned else {-1, -2, -3, -5, -7, -8, -100}
        return np.array(sorted(numbers), object).astype(numpy)
    if kind.is_complex:
        parts = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-3])
        return np.array([complex(a, b) for a in parts for b in parts]).astype(numpy)
    finite = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 7.3, 100.0, float(kind.max)]
    tiny = [float(ml_dtypes.finfo(numpy).tiny)]
    values = [*finite, *tiny, np.inf]
    return np.array([*values, *(-value for value in values), np.nan]).astype(numpy)


def words(text: str) -> list[str]:
    """Return the words of a text: names are easier to read without quotes."""
    return text.split()


def denormal(dtype: Any) -> Any:
    """Return numbers too small for their exponents, and a few that are not."""
    numpy: Any = tf.as_dtype(dtype).as_numpy_dtype
    tiny = float(ml_dtypes.finfo(numpy).tiny)
    return np.array([tiny / 2, -tiny / 2, tiny / 4, tiny, -tiny, 1.0, -2.0]).astype(numpy)


def pairs(values: Any) -> tuple[Any, Any]:
    first, second = np.meshgrid(values, values, indexing="ij")
    return first.ravel(), second.ravel()
