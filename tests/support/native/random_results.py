"""Results of the fuzzer's callbacks: right ones in odd forms, and wrong ones of all sorts."""

import array
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.native.frames import random_array

Arrays = list[np.ndarray]

# Dtypes that NumPy gives to the plain numbers of Python.
_PLAIN = [np.dtype(kind) for kind in (np.bool_, np.int64, np.float64, np.complex128)]


def as_declared(rng: random.Random, values: Arrays) -> Any:
    """The values, in a form and in a layout of memory that are allowed."""
    returned = [_relaid(rng, value) for value in values]
    if len(values) == 0:
        return rng.choice([None, [], ()])
    if len(values) == 1 and rng.random() < 0.5 and not isinstance(returned[0], list):
        return returned[0]
    return rng.choice([list, tuple])(returned)


def _relaid(rng: random.Random, value: np.ndarray) -> Any:
    """Equal to the value, but perhaps elsewhere and in another order."""
    ways: list[Callable[[], Any]] = [
        lambda: value,
        lambda: np.array(value, order="F"),
        lambda: np.array(value[..., ::-1])[..., ::-1] if value.ndim else value,
        lambda: np.repeat(value, 2, axis=-1)[..., ::2] if value.ndim else value,
        lambda: value.view(_Subclass),
        lambda: _Offered(value),
        lambda: _unaligned(value),
    ]
    if value.dtype.isbuiltin == 1:
        ways.append(lambda: value.astype(value.dtype.newbyteorder()))
        ways.append(lambda: value.data)
    if value.dtype in _PLAIN and value.size:
        ways.append(value.tolist)
    return rng.choice(ways)()


def _unaligned(value: np.ndarray) -> np.ndarray:
    whole = np.frombuffer(b"x" + value.tobytes(), np.uint8)
    return whole[1:].view(value.dtype).reshape(value.shape)


class _Subclass(np.ndarray):
    pass


class _Offered:
    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return self.value


class _Raises:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise self.error

    def __len__(self) -> int:
        raise self.error

    def __repr__(self) -> str:
        raise self.error


class _Finicky(np.ndarray):
    """A subclass of which no view can be taken."""

    def __array_finalize__(self, other: Any) -> None:
        if other is not None and getattr(other, "armed", False):
            raise RuntimeError("finicky")
        self.armed = other is not None


class _OddError(Exception):
    def __str__(self) -> str:
        raise ValueError("even its text fails")


def an_error(rng: random.Random) -> BaseException:
    text = rng.choice(["", "text", "a\0b", "\udcff", "☃" * 10, "long " * 5_000])
    kinds: list[Callable[[str], BaseException]] = [
        ValueError,
        KeyError,
        MemoryError,
        StopIteration,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        _OddError,
        lambda _: ExceptionGroup(text, [ValueError(text), _OddError()]),
    ]
    return rng.choice(kinds)(text)


def _holding(item: Any) -> np.ndarray:
    holder = np.empty((), object)
    holder[()] = item
    return holder


def a_wrong_one(rng: random.Random, value: np.ndarray) -> Any:
    """Something that is not an array of the value's dtype and shape."""
    other = np.dtype(np.int16 if value.dtype != np.int16 else np.float32)
    loop: list[Any] = []
    loop.append(loop)
    ways: list[Callable[[], Any]] = [
        lambda: None,
        lambda: rng.choice(["", "text", "\udcff", b"bytes", ["a", ["b"]], object(), {"a": 1}, ...]),
        lambda: np.ones(value.shape, other),
        lambda: value.astype(object),
        lambda: np.expand_dims(value, 0) if value.ndim < 60 else None,
        lambda: random_array(rng, [*value.shape, 2], value.dtype) if value.ndim < 60 else None,
        lambda: np.broadcast_to(np.zeros(1, value.dtype), (2**20, 2**15, 3)),
        lambda: np.zeros(value.shape, "V3"),
        lambda: np.zeros(value.shape, [("a", value.dtype), ("b", "i4", (2,))]),
        lambda: np.zeros(value.shape, rng.choice(["M8[s]", "m8[D]", "S3", "U3"])),
        lambda: np.zeros(value.shape, np.dtypes.StringDType()),
        lambda: [[1.0], [1.0, 2.0]],
        lambda: loop,
        lambda: [np.zeros([1] * 64).tolist()],
        lambda: _Raises(an_error(rng)),
        lambda: _holding(_Raises(an_error(rng))),
        lambda: np.zeros(value.shape, other).view(_Finicky),
        lambda: array.array("h" if value.dtype != np.int16 else "b", [1, 2, 3]),
        lambda: (number for number in range(3)),
        lambda: np.ma.MaskedArray(np.empty(value.shape, other), True),
        lambda: {1, 2},
        lambda: np.finfo(np.longdouble).max,
    ]
    return rng.choice(ways)()
