"""Nothing is found in sound callbacks, and what should be tried is."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions, process_pools

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)

pure = functools.partial(hostcall.callback, stateful=False)
pure_like = functools.partial(pure, result=lambda x: x)  # the result is like the argument
INTEGERS = np.array([4, 0, 7], np.int64)


@dataclasses.dataclass(frozen=True)
class Sound:
    """A callback, what it is tried with, and checks that must have been made."""

    make: Callable[[], Any]
    args: tuple[Any, ...]
    passed: tuple[str, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def _plain() -> Any:
    return hostcall.declare(
        lambda x: np.median(x, axis=0), result=lambda x: tf.TensorSpec(x.shape[1:], x.dtype)
    )


def _random_and_stateful() -> Any:
    generator = np.random.default_rng(0)
    return hostcall.callback(lambda x: x + generator.random(len(x), np.float32), result=lambda x: x)


def _nan() -> Any:
    def logarithm(x: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(x - 2)

    return pure_like(logarithm)


def _integers() -> Any:
    def shares(x: Any, y: Any) -> Any:
        return x // 2, (x + y).astype(np.float32) / 2

    return pure(shares, result=lambda x, y: (x, tf.TensorSpec(x.shape, tf.float32)))


def _strings() -> Any:
    def upper(words: Any) -> Any:
        return np.array([word.upper() for word in words], object)

    return pure(upper, result=lambda w: w)


def _one_string() -> Any:
    return pure(lambda word: word + b"!", result=tf.TensorSpec([], tf.string))


def _bounded() -> Any:
    return pure(np.unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))


def _ragged() -> Any:
    def above(x: Any) -> Any:
        rows = [row[row > 1] for row in x]
        values = np.concatenate([*rows, np.zeros(0, x.dtype)])
        return values, np.array([len(row) for row in rows], np.int64)

    def result(x: Any) -> Any:
        most = x.shape[0] * x.shape[1]
        return hostcall.BoundedSpec([most], x.dtype), tf.TensorSpec(x.shape[:1], tf.int64)

    return pure(above, result=result)


def _unknown_size() -> Any:
    return pure(lambda x: x[x > 1], result=tf.TensorSpec([None], tf.float32))


def _native() -> Any:
    numba = __import__("numba")
    types = numba.types
    pointer = types.CPointer(types.float32)

    @numba.cfunc(types.void(pointer, pointer, types.int64))
    def double(x: Any, y: Any, size: Any) -> None:
        for i in range(size):
            y[i] = x[i] * 2

    return hostcall.native(double, result=lambda x: x)


def _vectorized() -> Any:
    return pure(
        lambda a, b: np.sum(a * b, axis=-1),
        result=lambda a, b: tf.TensorSpec(a.shape[:-1], a.dtype),
        vmap_method="expand_dims",
    )


def _on_threads() -> Any:
    return hostcall.callback(
        lambda x: x[::-1],
        result=lambda x: x,
        executor=functools.partial(concurrent.futures.ThreadPoolExecutor, 2),
    )


def _eager() -> Any:
    return hostcall.callback(lambda x: tf.sin(x) * x, result=lambda x: x, kind="eager")


def _eager_without_gradient() -> Any:
    return hostcall.callback(lambda x: np.round(x.numpy()), result=lambda x: x, kind="eager")


def _given_gradient() -> Any:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        x, y = inputs
        return upstream * y, tf.reduce_sum(upstream * x)

    return pure(lambda x, y: x * y, result=lambda x, y: x, grad=grad)


def _kinked_gradient() -> Any:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return tf.where(inputs[0] > 0, upstream, 0)

    return pure_like(lambda x: np.maximum(x, 0), grad=grad)


class Scaler:
    """An object with a method that programs call."""

    def __init__(self) -> None:
        self.factor = np.float32(3)
        self.calls = 0

    @hostcall.callback(result=lambda x: x, stateful=False)
    def scaled(self, x: Any) -> Any:
        return x * self.factor

    @hostcall.callback(result=lambda x: x)
    def counted(self, x: Any) -> Any:
        self.calls += 1
        return x + self.calls


def _tensor_results() -> Any:
    return hostcall.declare(lambda x: tf.nn.softmax(x), result=lambda x: x)


def _structures() -> Any:
    Pair = collections.namedtuple("Pair", ["low", "high"])

    def ends(parts: Any) -> Any:
        return {"pair": Pair(parts["x"].min(), parts["x"].max()), "sum": parts["x"] + parts["y"]}

    def result(parts: Any) -> Any:
        scalar = tf.TensorSpec([], tf.float32)
        return {"pair": Pair(scalar, scalar), "sum": parts["x"]}

    return pure(ends, result=result)


def _borrows() -> Any:
    def scaled(x: Any, out: Any) -> Any:
        return np.multiply(x, 2, out=out)

    return pure_like(scaled, borrow=True, out=True)


def _returns_what_it_borrows() -> Any:
    return pure(lambda x: x[1:], result=tf.TensorSpec([2], tf.float32), borrow=True)


def _writes_strings() -> Any:
    def copied(words: Any, out: Any) -> None:
        out[...] = words

    return pure(copied, result=lambda words: words, out=True)


def _on_device() -> Any:
    return pure_like(lambda x: np.from_dlpack(x) * 2, memory="device")


def _caches() -> Any:
    @functools.cache
    def table(size: int) -> Any:
        return np.arange(size, dtype=np.float32)

    kept: dict[int, Any] = {}

    def positions(x: Any) -> Any:
        kept.setdefault(len(x), len(kept))
        return x + table(len(x))

    return pure_like(positions)


def _logs() -> Any:
    lines: list[float] = []
    return hostcall.callback(lambda x: lines.append(float(x.sum())), result=[])


def _hands_over() -> Any:
    lines: list[float] = []
    return hostcall.callback(lambda x: lines.append(float(x.sum())), result=[], wait=False)


def _remembers() -> Any:
    return hostcall.declare(lambda x: x**2, result=lambda x: x, memo=True)


def _writes_its_own() -> Any:
    def ranks(x: Any) -> Any:
        x.sort()
        return x

    return pure_like(ranks)


def _constant_table() -> Any:
    table = np.arange(4, dtype=np.float32)
    return pure(lambda: table, result=tf.TensorSpec([4], tf.float32))


def _keywords() -> Any:
    def clipped(x: Any, low: float = 0.0, *, high: float) -> Any:
        return np.clip(x, low, high).astype(x.dtype)

    return pure_like(clipped)


def _bfloat16() -> Any:
    return pure_like(lambda x: x + x)


def _solves() -> Any:
    return pure(np.linalg.solve, result=lambda a, b: b)


def _shapes_alone() -> Any:
    return hostcall.declare(lambda x: x[:, 0].astype(np.int32), result=lambda x: [x.shape[0]])


def _traced() -> Any:
    return hostcall.declare(lambda x: tf.reduce_sum(x, axis=0), result="trace", pure=True)


def _for_processes() -> Any:
    return pure_like(
        executor_functions.doubled,
        # A maker of its own: what another test's has made may have been ended.
        executor=functools.partial(process_pools.one_process),
    )


_TRIED = ("call", "count", "dtypes", "shapes", "compiled", "partitioned")
_PURE = (*_TRIED, "purity", "aliasing", "threads", "layout")

SOUND = {
    "a median": Sound(_plain, (MATRIX,), (*_TRIED, "arguments", "empty")),
    "random and stateful": Sound(_random_and_stateful, (VECTOR,), _TRIED),
    "NaNs": Sound(_nan, (VECTOR,), _PURE),
    "integers": Sound(_integers, (INTEGERS, np.int64(3)), (*_PURE, "zero_d")),
    "strings": Sound(_strings, (np.array([b"a", b"bc"], object),), _PURE),
    "one string": Sound(_one_string, ("word",), _TRIED),
    "a bounded size": Sound(_bounded, (tf.TensorSpec([None], tf.int32),), (*_PURE, "huge")),
    "rows of any length": Sound(_ragged, (MATRIX,), _PURE),
    "any size": Sound(_unknown_size, (VECTOR,), _PURE),
    "native": Sound(_native, (VECTOR,), _PURE),
    "vectorized": Sound(_vectorized, (MATRIX, MATRIX), (*_PURE, "vectorization")),
    "on threads": Sound(_on_threads, (VECTOR,), _TRIED),
    "eager": Sound(_eager, (VECTOR,), (*_TRIED, "gradient", "arguments")),
    "eager without gradient": Sound(_eager_without_gradient, (VECTOR,), _TRIED),
    "a gradient": Sound(_given_gradient, (VECTOR, np.float32(2)), (*_PURE, "gradient")),
    "a kinked gradient": Sound(
        _kinked_gradient, (np.array([0, -1, 2], np.float32),), (*_PURE, "gradient")
    ),
    "a method": Sound(lambda: Scaler().scaled, (VECTOR,), _PURE),
    "a method with state": Sound(lambda: Scaler().counted, (VECTOR,), _TRIED),
    "tensors returned": Sound(_tensor_results, (MATRIX,), _TRIED),
    "structures": Sound(_structures, ({"x": VECTOR, "y": VECTOR},), _PURE),
    "borrows": Sound(_borrows, (VECTOR,), (*_TRIED, "borrowed", "out", "purity")),
    "returns what it borrows": Sound(_returns_what_it_borrows, (VECTOR,), (*_TRIED, "borrowed")),
    "writes strings": Sound(_writes_strings, (np.array([b"a", b"b"], object),), (*_TRIED, "out")),
    "nothing in it": Sound(_borrows, (np.zeros([0, 2]),), (*_TRIED, "out")),
    "where arrays lie": Sound(_on_device, (VECTOR,), (*_TRIED, "borrowed")),
    "caches": Sound(_caches, (VECTOR,), _PURE),
    "logs": Sound(_logs, (VECTOR,), ("call", "count", "compiled", "partitioned")),
    "is not waited for": Sound(_hands_over, (VECTOR,), ("call", "compiled", "partitioned")),
    "is remembered": Sound(_remembers, (VECTOR,), (*_PURE, "arguments")),
    "writes its own arguments": Sound(_writes_its_own, (VECTOR,), _PURE),
    "no arguments": Sound(_constant_table, (), ("call", "shapes", "aliasing", "compiled")),
    "keywords": Sound(_keywords, (VECTOR,), _PURE, {"kwargs": {"high": 2.5}}),
    "bfloat16": Sound(_bfloat16, (tf.TensorSpec([None, 2], tf.bfloat16),), _PURE),
    "a solver": Sound(_solves, (np.eye(3) * 2, np.ones(3)), _TRIED),
    "scalars": Sound(_bfloat16, (tf.TensorSpec(None, tf.int8),), (*_PURE, "zero_d")),
    "dtypes in the call": Sound(_shapes_alone, (MATRIX,), _TRIED, {"result": tf.int32}),
    "traced": Sound(_traced, (MATRIX,), _TRIED, {"result": tf.float32, "kind": "eager"}),
    "for processes": Sound(_for_processes, (VECTOR,), ("call", "pickling", "name", "compiled")),
}


@pytest.fixture(scope="module", autouse=True)
def _end_pools() -> Iterator[None]:
    yield
    process_pools.end_pools()


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found(name: str) -> None:
    sound = SOUND[name]
    report = hostcall.check(sound.make(), *sound.args, **sound.options)
    assert report.ok
    assert {*sound.passed} <= {*report.passed}
    assert [one.why for one in report.not_checked if "itself has failed" in one.why] == []
