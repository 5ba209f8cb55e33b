"""Each callback with one fault gets the one finding that it deserves, with the line to write."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._check.checking import CHECKS

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)

pure = functools.partial(hostcall.callback, stateful=False)
pure_like = functools.partial(pure, result=lambda x: x)  # the result is like the argument


FAULTS: list[Any] = []


def fault(check: str, what: str, line: str, *args: Any) -> Any:
    """Have `check` find a fault in the callback that a function makes.

    Args:
      check: the check that finds it.
      what: a part of what it says.
      line: the line to write.
      *args: what the callback is tried with.
    """

    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        FAULTS.append(pytest.param(make, args, check, what, line, id=make.__name__))
        return make

    return enter


@fault(
    "call",
    "it raises for arguments of shape (3,): ValueError",
    "function(np.ones((3,), 'float32'))    # raises the same",
    VECTOR,
)
def raises() -> Any:
    return pure_like(lambda x: x @ [1.0, 2.0])


@fault("call", "read-only", "x = np.array(x)", VECTOR)
def borrowed_and_written() -> Any:
    def double(x: Any) -> Any:
        x *= 2
        return x

    return pure_like(double, borrow=True)


@fault("count", "it returned 2 values, and declared: 1", "return y", VECTOR)
def too_many() -> Any:
    return pure_like(lambda x: np.unique(x, True))


@fault(
    "dtypes",
    "result 0 is float64, and declared is float32",
    "return np.asarray(y, np.float32)",
    VECTOR,
)
def float64() -> Any:
    return hostcall.callback(
        lambda x: x * np.array([0.5]), result=lambda x: tf.TensorSpec(x.shape, x.dtype)
    )


@fault(
    "shapes",
    "result 0 has shape (2, 2) for arguments of shape (3, 2), and declared is (3, 2)",
    "result=lambda a: tf.TensorSpec([a.shape[0] - 1, a.shape[1]], tf.float32)",
    MATRIX,
)
def other_rows() -> Any:
    def differences(a: Any) -> Any:
        return a[1:] - a[:-1]

    return pure(differences, result=lambda a: a)


@fault(
    "shapes",
    "result 0 has shape () for arguments of shape (1,)",
    "route='partition'    # in the place of result=: no rule for the sizes is seen",
    tf.TensorSpec([None], tf.float32),
)
def squeezed() -> Any:
    return pure_like(np.squeeze)


@fault(
    "shapes",
    "for arguments of unknown size (None) the shape function says (3,)",
    "result=lambda x: tf.TensorSpec(x.shape, tf.float32)",
    VECTOR,
)
def size_for_none() -> Any:
    def rule(x: Any) -> Any:
        return tf.TensorSpec([x.shape[0] or 3], x.dtype)

    return pure(lambda x: x * 2, result=rule)


@fault("arguments", "it changes argument 0", "x = np.array(x)", VECTOR)
def writes_argument() -> Any:
    def ranks(x: Any) -> Any:
        x.sort()
        return x + 1

    return hostcall.declare(ranks, result=lambda x: x)


@fault(
    "purity",
    "two calls with equal arguments",
    "stateful=True    # in the place of stateful=False",
    VECTOR,
)
def random() -> Any:
    generator = np.random.default_rng(0)

    def noise(x: Any) -> Any:
        return x + generator.normal(size=x.shape).astype(x.dtype)

    return pure_like(noise)


@fault(
    "purity", "each call changes variable seen", "memo=False    # in the place of memo=True", VECTOR
)
def counts() -> Any:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x * 2

    return hostcall.declare(counted, result=lambda x: x, memo=True)


@fault("aliasing", "a call changes what the call before", "return y.copy()", VECTOR)
def same_buffer() -> Any:
    buffer = np.zeros(3, np.float32)

    def double(x: Any) -> Any:
        np.multiply(x, 2, out=buffer)
        return buffer

    return pure(double, result=tf.TensorSpec([3], tf.float32))


@fault("borrowed", "something still refers", "kept = np.array(x)", VECTOR)
def kept() -> Any:
    kept: list[Any] = []

    def double(x: Any) -> Any:
        kept[:] = [x[1:]]
        return x * 2

    return hostcall.callback(double, result=lambda x: x, borrow=True)


@fault("out", "it leaves 3 of 6 elements", "out.fill(0)    # before it writes a part", MATRIX)
def half_out() -> Any:
    def largest(x: Any, out: Any) -> None:
        out[:, 0] = x.max(axis=1)

    return hostcall.callback(largest, result=lambda x: x, out=True)


@fault("out", "not `out`", "out[...] = y    # and return nothing", VECTOR)
def not_out() -> Any:
    return hostcall.callback(lambda x, out: x * 2, result=lambda x: x, out=True)


@fault(
    "gradient",
    "finite differences say",
    "gradient_of_x = upstream * ...    # the derivative",
    VECTOR,
)
def wrong_gradient() -> Any:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return upstream * inputs[0]

    return pure_like(np.square, grad=grad)


@fault(
    "gradient",
    "the gradient of argument 1 has shape (3,), and the argument ()",
    "tf.reduce_sum(gradient_of_factor, axis=0)",
    VECTOR,
    np.float32(2),
)
def gradient_of_another_shape() -> Any:
    def scale(x: Any, factor: Any) -> Any:
        return x * factor

    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        x, factor = inputs
        return upstream * factor, upstream * x

    return pure(scale, result=lambda x, factor: x, grad=grad)


@fault(
    "vectorization",
    "for a batch of 3, result 0 is",
    'vmap_method="sequential"    # in the place of vmap_method="expand_dims"',
    VECTOR,
)
def along_the_batch() -> Any:
    def centered(x: Any) -> Any:
        return x - x.mean(axis=0)

    return pure_like(centered, vmap_method="expand_dims")


@fault(
    "threads",
    "with 8 threads result 0 is",
    "with lock:    # lock = threading.Lock(), around what the calls share",
    VECTOR,
)
def not_for_threads() -> Any:
    state: dict[str, Any] = {}

    def double(x: Any) -> Any:
        state["x"] = x
        time.sleep(0.001)  # other threads run, as they do while a device works
        return state["x"] * 2

    return pure_like(double, concurrent=True)


@fault(
    "empty",
    "result 0 is float64, and declared is float32",
    "return np.asarray(y, np.float32)",
    VECTOR,
)
def nothing_of_nothing() -> Any:
    def halves(x: Any) -> Any:
        return np.array([np.float32(value / 2) for value in x])

    return pure_like(halves)


@fault(
    "zero_d",
    "result 0 has shape (1,) for arguments of shape (), and declared is ()",
    "if not np.ndim(a): ...",
    tf.TensorSpec(None, tf.float32),
)
def no_scalars() -> Any:
    return pure_like(np.cumsum)


@fault("huge", "RecursionError", "def total(...): ...    # for many rows, too", VECTOR)
def by_recursion() -> Any:
    def total(x: Any) -> Any:
        return x[0] + total(x[1:]) if len(x) else np.float32(0)

    return pure(total, result=lambda x: tf.TensorSpec([], x.dtype))


@fault("layout", "every second of a larger array", "x = np.ascontiguousarray(x)", VECTOR)
def by_address() -> Any:
    def first_two(x: Any) -> Any:
        return np.lib.stride_tricks.as_strided(x, [2], [x.itemsize]).copy()

    return pure(first_two, result=tf.TensorSpec([2], tf.float32))


@fault(
    "pickling",
    "it cannot be sent to processes of the executor",
    "def function(...): ...    # at the top of a module",
    VECTOR,
)
def lambda_for_processes() -> Any:
    def make() -> Any:
        return concurrent.futures.ProcessPoolExecutor(1)

    return pure_like(lambda x: x * 2, executor=make)


@fault(
    "compiled",
    "object has no attribute 'factor'",
    "def function(...): ...    # the same on each thread, by its arguments alone",
    VECTOR,
)
def by_thread() -> Any:
    local = threading.local()
    local.factor = np.float32(2)
    return hostcall.callback(lambda x: x * local.factor, result=lambda x: x)


@fault(
    "partitioned",
    "in a partitioned program result 0 is [3., 1., 2.], and the function itself returns",
    "def scaled(...): ...    # the same on each thread, by its arguments alone",
    VECTOR,
)
def by_caller() -> Any:
    def scaled(x: Any) -> Any:
        files = [frame.filename for frame in inspect.stack(context=0)]
        return x if any("partition" in file for file in files) else x * 2

    return pure_like(scaled)


@pytest.mark.parametrize(("make", "args", "check", "what", "line"), FAULTS)
def test_fault_is_the_one_finding(make: Any, args: Any, check: str, what: str, line: str) -> None:
    with pytest.raises(hostcall.CheckError) as caught:
        hostcall.check(make(), *args)
    (finding,) = caught.value.report.findings
    assert finding.check == check
    assert what in finding.what
    assert finding.line == line
    assert finding.cause


def test_each_check_finds_a_fault() -> None:
    # Names are looked for in modules that the tests of it write; JAX is in tests/jax.
    found = {check for _, _, check, _, _ in (fault.values for fault in FAULTS)} | {"name", "jax"}
    assert found == {check.name for check in CHECKS}
