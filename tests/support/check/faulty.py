"""Callbacks with one fault each, the finding that it deserves, and the line that corrects it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A callback, and what is wrong with it.

    Attributes:
      make: makes the callback.
      args: what it is tried with.
      check: the check that finds it.
      what: a part of what it says.
      line: the line to write.
      options: further arguments of `hostcall.check`.
    """

    make: Callable[[], Any]
    args: tuple[Any, ...]
    check: str
    what: str
    line: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def _raises() -> Any:
    return hostcall.callback(lambda x: x @ [1.0, 2.0], result=lambda x: x, stateful=False)


def _borrowed_and_written() -> Any:
    def double(x: Any) -> Any:
        x *= 2
        return x

    return hostcall.callback(double, result=lambda x: x, borrow=True, stateful=False)


def _too_many() -> Any:
    return hostcall.callback(lambda x: np.unique(x, True), result=lambda x: x, stateful=False)


def _float64() -> Any:
    return hostcall.callback(
        lambda x: x * np.array([0.5]), result=lambda x: tf.TensorSpec(x.shape, x.dtype)
    )


def _other_rows() -> Any:
    def differences(a: Any) -> Any:
        return a[1:] - a[:-1]

    return hostcall.callback(differences, result=lambda a: a, stateful=False)


def _squeezed() -> Any:
    return hostcall.callback(np.squeeze, result=lambda x: x, stateful=False)


def _size_for_none() -> Any:
    def rule(x: Any) -> Any:
        return tf.TensorSpec([x.shape[0] or 3], x.dtype)

    return hostcall.callback(lambda x: x * 2, result=rule, stateful=False)


def _writes_argument() -> Any:
    def ranks(x: Any) -> Any:
        x.sort()
        return x + 1

    return hostcall.declare(ranks, result=lambda x: x)


def _random() -> Any:
    generator = np.random.default_rng(0)

    def noise(x: Any) -> Any:
        return x + generator.normal(size=x.shape).astype(x.dtype)

    return hostcall.callback(noise, result=lambda x: x, stateful=False)


def _counts() -> Any:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x * 2

    return hostcall.declare(counted, result=lambda x: x, memo=True)


def _same_buffer() -> Any:
    buffer = np.zeros(3, np.float32)

    def double(x: Any) -> Any:
        np.multiply(x, 2, out=buffer)
        return buffer

    return hostcall.callback(double, result=tf.TensorSpec([3], tf.float32), stateful=False)


def _kept() -> Any:
    kept: list[Any] = []

    def double(x: Any) -> Any:
        kept[:] = [x[1:]]
        return x * 2

    return hostcall.callback(double, result=lambda x: x, borrow=True)


def _half_out() -> Any:
    def largest(x: Any, out: Any) -> None:
        out[:, 0] = x.max(axis=1)

    return hostcall.callback(largest, result=lambda x: x, out=True)


def _not_out() -> Any:
    return hostcall.callback(lambda x, out: x * 2, result=lambda x: x, out=True)


def _wrong_gradient() -> Any:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return upstream * inputs[0]

    return hostcall.callback(np.square, result=lambda x: x, grad=grad, stateful=False)


def _gradient_of_another_shape() -> Any:
    def scale(x: Any, factor: Any) -> Any:
        return x * factor

    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        x, factor = inputs
        return upstream * factor, upstream * x

    return hostcall.callback(scale, result=lambda x, factor: x, grad=grad, stateful=False)


def _along_the_batch() -> Any:
    def centered(x: Any) -> Any:
        return x - x.mean(axis=0)

    return hostcall.callback(
        centered, result=lambda x: x, stateful=False, vmap_method="expand_dims"
    )


def _not_for_threads() -> Any:
    state: dict[str, Any] = {}

    def double(x: Any) -> Any:
        state["x"] = x
        time.sleep(0.001)  # other threads run, as they do while a device works
        return state["x"] * 2

    return hostcall.callback(double, result=lambda x: x, stateful=False, concurrent=True)


def _nothing_of_nothing() -> Any:
    def halves(x: Any) -> Any:
        return np.array([np.float32(value / 2) for value in x])

    return hostcall.callback(halves, result=lambda x: x, stateful=False)


def _no_scalars() -> Any:
    return hostcall.callback(np.cumsum, result=lambda x: x, stateful=False)


def _by_recursion() -> Any:
    def total(x: Any) -> Any:
        return x[0] + total(x[1:]) if len(x) else np.float32(0)

    return hostcall.callback(total, result=lambda x: tf.TensorSpec([], x.dtype), stateful=False)


def _by_address() -> Any:
    def first_two(x: Any) -> Any:
        return np.lib.stride_tricks.as_strided(x, [2], [x.itemsize]).copy()

    return hostcall.callback(first_two, result=tf.TensorSpec([2], tf.float32), stateful=False)


def _lambda_for_processes() -> Any:
    def make() -> Any:
        return concurrent.futures.ProcessPoolExecutor(1)

    return hostcall.callback(lambda x: x * 2, result=lambda x: x, executor=make, stateful=False)


def _by_thread() -> Any:
    local = threading.local()
    local.factor = np.float32(2)
    return hostcall.callback(lambda x: x * local.factor, result=lambda x: x)


def _by_caller() -> Any:
    def scaled(x: Any) -> Any:
        files = [frame.filename for frame in inspect.stack(context=0)]
        return x if any("partition" in file for file in files) else x * 2

    return hostcall.callback(scaled, result=lambda x: x, stateful=False)


FAULTS = {
    "raises": Fault(
        _raises,
        (VECTOR,),
        "call",
        "it raises for arguments of shape (3,): ValueError",
        "function(np.ones((3,), 'float32'))    # raises the same",
    ),
    "writes borrowed": Fault(
        _borrowed_and_written, (VECTOR,), "call", "read-only", "x = np.array(x)"
    ),
    "too many results": Fault(
        _too_many, (VECTOR,), "count", "it returned 2 values, and declared: 1", "return y"
    ),
    "float64": Fault(
        _float64,
        (VECTOR,),
        "dtypes",
        "result 0 is float64, and declared is float32",
        "return np.asarray(y, np.float32)",
    ),
    "other rows": Fault(
        _other_rows,
        (MATRIX,),
        "shapes",
        "result 0 has shape (2, 2) for arguments of shape (3, 2), and declared is (3, 2)",
        "result=lambda a: tf.TensorSpec([a.shape[0] - 1, a.shape[1]], tf.float32)",
    ),
    "squeezed": Fault(
        _squeezed,
        (tf.TensorSpec([None], tf.float32),),
        "shapes",
        "result 0 has shape () for arguments of shape (1,)",
        "route='partition'    # in the place of result=: no rule for the sizes is seen",
    ),
    "size for None": Fault(
        _size_for_none,
        (VECTOR,),
        "shapes",
        "for arguments of unknown size (None) the shape function says (3,)",
        "result=lambda x: tf.TensorSpec(x.shape, tf.float32)",
    ),
    "writes argument": Fault(
        _writes_argument, (VECTOR,), "arguments", "it changes argument 0", "x = np.array(x)"
    ),
    "random": Fault(
        _random,
        (VECTOR,),
        "purity",
        "two calls with equal arguments",
        "stateful=True    # in the place of stateful=False",
    ),
    "counts": Fault(
        _counts,
        (VECTOR,),
        "purity",
        "each call changes variable seen",
        "memo=False    # in the place of memo=True",
    ),
    "same buffer": Fault(
        _same_buffer,
        (VECTOR,),
        "aliasing",
        "a call changes what the call before",
        "return y.copy()",
    ),
    "kept": Fault(_kept, (VECTOR,), "borrowed", "something still refers", "kept = np.array(x)"),
    "half of out": Fault(
        _half_out,
        (MATRIX,),
        "out",
        "it leaves 3 of 6 elements",
        "out.fill(0)    # before it writes a part",
    ),
    "not out": Fault(
        _not_out, (VECTOR,), "out", "not `out`", "out[...] = y    # and return nothing"
    ),
    "wrong gradient": Fault(
        _wrong_gradient,
        (VECTOR,),
        "gradient",
        "finite differences say",
        "gradient_of_x = upstream * ...    # the derivative",
    ),
    "gradient of another shape": Fault(
        _gradient_of_another_shape,
        (VECTOR, np.float32(2)),
        "gradient",
        "the gradient of argument 1 has shape (3,), and the argument ()",
        "tf.reduce_sum(gradient_of_factor, axis=0)",
    ),
    "along the batch": Fault(
        _along_the_batch,
        (VECTOR,),
        "vectorization",
        "for a batch of 3, result 0 is",
        'vmap_method="sequential"    # in the place of vmap_method="expand_dims"',
    ),
    "not for threads": Fault(
        _not_for_threads,
        (VECTOR,),
        "threads",
        "with 8 threads result 0 is",
        "with lock:    # lock = threading.Lock(), around what the calls share",
    ),
    "nothing of nothing": Fault(
        _nothing_of_nothing,
        (VECTOR,),
        "empty",
        "result 0 is float64, and declared is float32",
        "return np.asarray(y, np.float32)",
    ),
    "no scalars": Fault(
        _no_scalars,
        (tf.TensorSpec(None, tf.float32),),
        "zero_d",
        "result 0 has shape (1,) for arguments of shape (), and declared is ()",
        "if not np.ndim(a): ...",
    ),
    "by recursion": Fault(
        _by_recursion,
        (VECTOR,),
        "huge",
        "RecursionError",
        "def total(...): ...    # for many rows, too",
    ),
    "by address": Fault(
        _by_address,
        (VECTOR,),
        "layout",
        "every second of a larger array",
        "x = np.ascontiguousarray(x)",
    ),
    "lambda for processes": Fault(
        _lambda_for_processes,
        (VECTOR,),
        "pickling",
        "it cannot be sent to processes of the executor",
        "def function(...): ...    # at the top of a module",
    ),
    "by thread": Fault(
        _by_thread,
        (VECTOR,),
        "compiled",
        "object has no attribute 'factor'",
        "def function(...): ...    # the same on each thread, by its arguments alone",
    ),
    "by caller": Fault(
        _by_caller,
        (VECTOR,),
        "partitioned",
        "in a partitioned program result 0 is [3., 1., 2.], and the function itself returns",
        "def scaled(...): ...    # the same on each thread, by its arguments alone",
    ),
}
