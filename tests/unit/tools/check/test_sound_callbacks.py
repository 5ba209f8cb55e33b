"""Nothing is found in sound callbacks, and what should be tried is."""

import collections
import concurrent.futures
import functools
from typing import Any

import jax.numpy as jnp
import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions, process_pools

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)
INTEGERS = np.array([4, 0, 7], np.int64)
WORDS = np.array([b"a", b"bc"], object)

pure = functools.partial(hostcall.callback, stateful=False)
like = functools.partial(hostcall.callback, result=lambda x: x)  # the result is like the argument
pure_like = functools.partial(like, stateful=False)
declared_like = functools.partial(hostcall.declare, result=lambda x: x)
Pair = collections.namedtuple("Pair", ["low", "high"])


def _random_and_stateful() -> Any:
    generator = np.random.default_rng(0)
    return like(lambda x: x + generator.random(len(x), np.float32))


def _nan(x: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(x - 2)


def _upper(words: Any) -> Any:
    return np.array([word.upper() for word in words], object)


def _above(x: Any) -> Any:
    rows = [row[row > 1] for row in x]
    values = np.concatenate([*rows, np.zeros(0, x.dtype)])
    return values, np.array([len(row) for row in rows], np.int64)


def _of_above(x: Any) -> Any:
    most = x.shape[0] * x.shape[1]
    return hostcall.BoundedSpec([most], x.dtype), tf.TensorSpec(x.shape[:1], tf.int64)


def _native() -> Any:
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


def _given_gradient() -> Any:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        x, y = inputs
        return upstream * y, tf.reduce_sum(upstream * x)

    return pure(lambda x, y: x * y, result=lambda x, y: x, grad=grad)


def _kinked(inputs: Any, results: Any, upstream: Any) -> Any:
    return tf.where(inputs[0] > 0, upstream, 0)


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


def _structures() -> Any:
    scalar = tf.TensorSpec([], tf.float32)
    return pure(
        lambda x: {"pair": Pair(x["x"].min(), x["x"].max()), "sum": x["x"] + x["y"]},
        result=lambda x: {"pair": Pair(scalar, scalar), "sum": x["x"]},
    )


def _borrows() -> Any:
    return pure_like(lambda x, out: np.multiply(x, 2, out=out), borrow=True, out=True)


def _copied(words: Any, out: Any) -> None:
    out[...] = words


def _caches() -> Any:
    table = functools.cache(lambda size: np.arange(size, dtype=np.float32))
    kept: dict[int, Any] = {}

    def positions(x: Any) -> Any:
        kept.setdefault(len(x), len(kept))
        return x + table(len(x))

    return pure_like(positions)


def _logs(**options: Any) -> Any:
    lines: list[float] = []
    return hostcall.callback(lambda x: lines.append(float(x.sum())), result=[], **options)


def _ranks(x: Any) -> Any:
    x.sort()
    return x


def _clipped(x: Any, low: float = 0.0, *, high: float) -> Any:
    return np.clip(x, low, high).astype(x.dtype)


def _shares() -> Any:
    return pure(
        lambda x, y: (x // 2, (x + y).astype(np.float32) / 2),
        result=lambda x, y: (x, tf.TensorSpec(x.shape, tf.float32)),
    )


def _median(x: Any) -> Any:
    return np.median(x, axis=0)


def _rows(x: Any) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape[1:], x.dtype)


def _doubled(x: Any) -> Any:
    return x + x


def _column(x: Any) -> Any:
    return x[:, 0].astype(np.int32)


def _length(x: Any) -> Any:
    return [x.shape[0]]


# Makers of executors of this file: what another test's has made may have been ended.
THREADS = functools.partial(concurrent.futures.ThreadPoolExecutor, 2)
PROCESS = functools.partial(process_pools.one_process)
STRING = tf.TensorSpec([], tf.string)
ANY_SIZE = tf.TensorSpec([None], tf.float32)

_TRIED = ("call", "count", "dtypes", "shapes", "compiled", "partitioned")
_PURE = (*_TRIED, "purity", "aliasing", "threads", "layout")
_BORROWED = (*_TRIED, "borrowed")
_OUT = (*_TRIED, "out")
_EAGER = (*_TRIED, "gradient", "arguments")
_DECLARED = (*_TRIED, "arguments", "empty")
# What makes a callback, checks that must have been made, and what it is tried with (or a vector).
SOUND: dict[str, tuple[Any, ...]] = {
    "a median": (lambda: hostcall.declare(_median, result=_rows), _DECLARED, MATRIX),
    "random and stateful": (_random_and_stateful, _TRIED),
    "NaNs": (lambda: pure_like(_nan), _PURE),
    "integers": (_shares, (*_PURE, "zero_d"), INTEGERS, np.int64(3)),
    "strings": (lambda: pure_like(_upper), _PURE, WORDS),
    "one string": (lambda: pure(lambda word: word + b"!", result=STRING), _TRIED, "word"),
    "a bounded size": (
        lambda: pure(np.unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype)),
        (*_PURE, "huge"),
        tf.TensorSpec([None], tf.int32),
    ),
    "rows of any length": (lambda: pure(_above, result=_of_above), _PURE, MATRIX),
    "any size": (lambda: pure(lambda x: x[x > 1], result=ANY_SIZE), _PURE),
    "native": (_native, _PURE),
    "vectorized": (_vectorized, (*_PURE, "vectorization"), MATRIX, MATRIX),
    "on threads": (lambda: like(lambda x: x[::-1], executor=THREADS), _TRIED),
    "eager": (lambda: like(lambda x: tf.sin(x) * x, kind="eager"), _EAGER),
    "eager without gradient": (lambda: like(lambda x: np.round(x.numpy()), kind="eager"), _TRIED),
    "a gradient": (_given_gradient, (*_PURE, "gradient"), VECTOR, np.float32(2)),
    "a kinked gradient": (
        lambda: pure_like(lambda x: np.maximum(x, 0), grad=_kinked),
        (*_PURE, "gradient"),
        np.array([0, -1, 2], np.float32),
    ),
    "a method": (lambda: Scaler().scaled, _PURE),
    "a method with state": (lambda: Scaler().counted, _TRIED),
    "tensors returned": (lambda: declared_like(lambda x: tf.nn.softmax(x)), _TRIED, MATRIX),
    "structures": (_structures, _PURE, {"x": VECTOR, "y": VECTOR}),
    "borrows": (_borrows, (*_OUT, "borrowed", "purity")),
    "returns what it borrows": (
        lambda: pure(lambda x: x[1:], result=tf.TensorSpec([2], tf.float32), borrow=True),
        _BORROWED,
    ),
    "writes strings": (lambda: pure_like(_copied, out=True), _OUT, WORDS),
    "nothing in it": (_borrows, _OUT, np.zeros([0, 2])),
    "in memory": (lambda: pure_like(lambda x: np.from_dlpack(x) * 2, memory="device"), _BORROWED),
    "caches": (_caches, _PURE),
    "logs": (_logs, ("call", "count", "compiled", "partitioned")),
    "is not waited for": (lambda: _logs(wait=False), ("call", "compiled", "partitioned")),
    "is remembered": (lambda: declared_like(lambda x: x**2, memo=True), (*_PURE, "arguments")),
    "writes its own arguments": (lambda: pure_like(_ranks), _PURE),
    "keywords": (lambda: pure_like(_clipped), _PURE),
    "bfloat16": (lambda: pure_like(_doubled), _PURE, tf.TensorSpec([None, 2], tf.bfloat16)),
    "a solver": (
        lambda: pure(np.linalg.solve, result=lambda a, b: b),
        _TRIED,
        np.eye(3) * 2,
        np.ones(3),
    ),
    "scalars": (lambda: pure_like(_doubled), (*_PURE, "zero_d"), tf.TensorSpec(None, tf.int8)),
    "dtypes in the call": (lambda: hostcall.declare(_column, result=_length), _TRIED, MATRIX),
    "traced": (
        lambda: hostcall.declare(lambda x: tf.reduce_sum(x, axis=0), result="trace", pure=True),
        _TRIED,
        MATRIX,
    ),
    "arrays of JAX": (lambda: pure_like(np.sin), ("compiled", "partitioned", "jax"), jnp.ones(3)),
    "for processes": (
        lambda: pure_like(executor_functions.doubled, executor=PROCESS),
        ("call", "pickling", "name", "compiled"),
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "keywords": {"kwargs": {"high": 2.5}},
    "dtypes in the call": {"result": tf.int32},
    "traced": {"result": tf.float32, "kind": "eager"},
}


@pytest.mark.usefixtures("pools_end")
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found(name: str) -> None:
    make, passed, *args = SOUND[name]
    # pytest rewrites this file, so a fresh process finds other functions in it.
    skip = [] if "name" in passed else ["name"]
    report = hostcall.check(make(), *(args or [VECTOR]), skip=skip, **OPTIONS.get(name, {}))
    assert_sound(report, passed)


def test_nothing_is_found_without_arguments() -> None:
    table = np.arange(4, dtype=np.float32)
    constant = pure(lambda: table, result=tf.TensorSpec([4], tf.float32))
    assert_sound(hostcall.check(constant), ("call", "shapes", "aliasing", "compiled"))


def assert_sound(report: hostcall.CheckReport, passed: Any) -> None:
    assert report.ok
    assert {*passed} <= {*report.passed}
    assert [one.why for one in report.not_checked if "itself has failed" in one.why] == []
