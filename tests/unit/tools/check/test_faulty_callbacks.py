"""Each callback with one fault gets the one finding that it deserves, with the line to write."""

import functools
import inspect
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._tools.check.checking import CHECKS

VECTOR = np.array([3.0, 1.0, 2.0], np.float32)
MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)
# Parts of lines to write.
AS_FLOAT32 = "return np.asarray(y, np.float32)"
INSTEAD = "    # in the place of "
STATEFUL = f"stateful=True{INSTEAD}stateful=False"
ON_THREADS = "(...): ...    # the same on each thread, by its arguments alone"

pure = functools.partial(hostcall.callback, stateful=False)
like = functools.partial(hostcall.callback, result=lambda x: x)  # the result is like the argument
pure_like = functools.partial(like, stateful=False)


def doubled_in_place(x: Any) -> Any:
    x *= 2
    return x


def size_for_none(x: Any) -> Any:
    return tf.TensorSpec([x.shape[0] or 3], x.dtype)


def ranks(x: Any) -> Any:
    x.sort()
    return x + 1


def random() -> Any:
    generator = np.random.default_rng(0)
    return pure_like(lambda x: x + generator.normal(size=x.shape).astype(x.dtype))


def counts() -> Any:
    seen: list[int] = []

    def counted(x: Any) -> Any:
        seen.append(len(x))
        return x * 2

    return hostcall.declare(counted, result=lambda x: x, memo=True)


def same_buffer() -> Any:
    buffer = np.zeros(3, np.float32)
    return pure(lambda x: np.multiply(x, 2, out=buffer), result=tf.TensorSpec([3], tf.float32))


def kept() -> Any:
    kept: list[Any] = []

    def double(x: Any) -> Any:
        kept[:] = [x[1:]]
        return x * 2

    return like(double, borrow=True)


def half_out(x: Any, out: Any) -> None:
    out[:, 0] = x.max(axis=1)


def wrong_gradient(inputs: Any, results: Any, upstream: Any) -> Any:
    return upstream * inputs[0]


def gradient_of_another_shape(inputs: Any, results: Any, upstream: Any) -> Any:
    x, factor = inputs
    return upstream * factor, upstream * x


def not_for_threads() -> Any:
    state: dict[str, Any] = {}

    def double(x: Any) -> Any:
        state["x"] = x
        time.sleep(0.001)  # other threads run, as they do while a device works
        return state["x"] * 2

    return pure_like(double, concurrent=True)


def total(x: Any) -> Any:
    return x[0] + total(x[1:]) if len(x) else np.float32(0)


def by_address(x: Any) -> Any:
    return np.lib.stride_tricks.as_strided(x, [2], [x.itemsize]).copy()


def by_thread() -> Any:
    local = threading.local()
    local.factor = np.float32(2)
    return like(lambda x: x * local.factor)


def scaled(x: Any) -> Any:
    files = [frame.filename for frame in inspect.stack(context=0)]
    return x if any("clusters" in file for file in files) else x * 2


def shown(x: Any) -> Any:
    print("x")  # noqa: T201
    return x


def drawing(x: Any) -> Any:
    np.random.random()
    return x * 2


class Model:
    """An object whose method counts its calls."""

    calls = 0

    @hostcall.callback(result=lambda x: x, stateful=False)
    def run(self, x: Any) -> Any:
        self.calls += 1
        return x


def of_columns(x: Any) -> Any:
    return tf.TensorSpec([x.shape[1]], x.dtype)


def at_most(x: Any) -> Any:
    return hostcall.BoundedSpec(x.shape, x.dtype)


SCALE: dict[str, Any] = {"result": lambda x, factor: x, "grad": gradient_of_another_shape}
# Makers of callbacks, and what these are tried with, if not with a vector.
TRIED: dict[str, tuple[Any, ...]] = {
    "raises": (lambda: pure_like(lambda x: x @ [1.0, 2.0]),),
    "borrowed and written": (lambda: pure_like(doubled_in_place, borrow=True),),
    "too many": (lambda: pure_like(lambda x: np.unique(x, True)),),
    "float64": (lambda: like(lambda x: x * np.array([0.5])),),
    "other rows": (lambda: pure(lambda a: a[1:] - a[:-1], result=lambda a: a), MATRIX),
    "squeezed": (lambda: pure_like(np.squeeze), tf.TensorSpec([None], tf.float32)),
    "size for None": (lambda: pure(lambda x: x * 2, result=size_for_none),),
    "writes an argument": (lambda: hostcall.declare(ranks, result=lambda x: x),),
    "random": (random,),
    "counts": (counts,),
    "same buffer": (same_buffer,),
    "kept": (kept,),
    "half of out": (lambda: like(half_out, out=True), MATRIX),
    "not out": (lambda: like(lambda x, out: x * 2, out=True),),
    "wrong gradient": (lambda: pure_like(np.square, grad=wrong_gradient),),
    "its shape": (lambda: pure(lambda x, factor: x * factor, **SCALE), VECTOR, np.float32(2)),
    "batch": (lambda: pure_like(lambda x: x - x.mean(axis=0), vmap_method="expand_dims"),),
    "not for threads": (not_for_threads,),
    "nothing": (lambda: pure_like(lambda x: np.array([np.float32(value / 2) for value in x])),),
    "no scalars": (lambda: pure_like(np.cumsum), tf.TensorSpec(None, tf.float32)),
    "by recursion": (lambda: pure(total, result=lambda x: tf.TensorSpec([], x.dtype)),),
    "by address": (lambda: pure(by_address, result=tf.TensorSpec([2], tf.float32)),),
    "not sent": (lambda: pure_like(lambda x: x * 2, executor=lambda: ProcessPoolExecutor(1)),),
    "by thread": (by_thread,),
    "by caller": (lambda: pure_like(scaled),),
    "bound": (lambda: hostcall.callback(lambda x: np.repeat(x, 2), result=at_most),),
    "rule": (lambda: hostcall.callback(lambda x: x * 2, result=of_columns),),
    "prints": (lambda: pure_like(shown),),
    "generator": (lambda: pure_like(drawing),),
    "method": (lambda: Model().run,),
    "hidden gradient": (lambda: like(lambda x: x * tf.stop_gradient(x), kind="eager"),),
}
# For each, the check that finds the fault, a part of what it says, and the line to write.
FOUND = {
    "raises": (
        "call",
        "it raises for arguments of shape (3,): ValueError",
        "function(np.ones((3,), 'float32'))    # raises the same",
    ),
    "borrowed and written": ("call", "read-only", "x = np.array(x)"),
    "too many": ("count", "it returned 2 values, and declared: 1", "return y"),
    "float64": ("dtypes", "result 0 is float64, and declared is float32", AS_FLOAT32),
    "other rows": (
        "shapes",
        "result 0 has shape (2, 2) for arguments of shape (3, 2), and declared is (3, 2)",
        "result=lambda a: tf.TensorSpec([a.shape[0] - 1, a.shape[1]], tf.float32)",
    ),
    "squeezed": (
        "shapes",
        "result 0 has shape () for arguments of shape (1,)",
        "route='partition'    # in the place of result=: no rule for the sizes is seen",
    ),
    "size for None": (
        "shapes",
        "for arguments of unknown size (None) the shape function says (3,)",
        "result=lambda x: tf.TensorSpec(x.shape, tf.float32)",
    ),
    "writes an argument": ("arguments", "it changes argument 0", "x = np.array(x)"),
    "random": ("purity", "two calls with equal arguments", STATEFUL),
    "counts": ("purity", "each call changes variable seen", f"memo=False{INSTEAD}memo=True"),
    "same buffer": ("aliasing", "a call changes what the call before", "return y.copy()"),
    "kept": ("borrowed", "something still refers", "kept = np.array(x)"),
    "half of out": ("out", "it leaves 3 of 6 elements", "out.fill(0)    # before it writes a part"),
    "not out": ("out", "not `out`", "out[...] = y    # and return nothing"),
    "wrong gradient": (
        "gradient",
        "finite differences say",
        "gradient_of_x = upstream * ...    # the derivative",
    ),
    "its shape": (
        "gradient",
        "the gradient of argument 1 has shape (3,), and the argument ()",
        "tf.reduce_sum(gradient_of_factor, axis=0)",
    ),
    "batch": (
        "vectorization",
        "for a batch of 3, result 0 is",
        f'vmap_method="sequential"{INSTEAD}vmap_method="expand_dims"',
    ),
    "not for threads": (
        "threads",
        "with 8 threads result 0 is",
        "with lock:    # lock = threading.Lock(), around what the calls share",
    ),
    "nothing": ("empty", "result 0 is float64, and declared is float32", AS_FLOAT32),
    "no scalars": (
        "zero_d",
        "result 0 has shape (1,) for arguments of shape (), and declared is ()",
        "if not np.ndim(a): ...",
    ),
    "by recursion": ("huge", "RecursionError", "def total(...): ...    # for many rows, too"),
    "by address": ("layout", "every second of a larger array", "x = np.ascontiguousarray(x)"),
    "not sent": (
        "pickling",
        "it cannot be sent to processes of the executor",
        "def function(...): ...    # at the top of a module",
    ),
    "by thread": ("compiled", "object has no attribute 'factor'", f"def function{ON_THREADS}"),
    "by caller": (
        "partitioned",
        "in a partitioned program result 0 is [3., 1., 2.], and the function itself returns",
        f"def scaled{ON_THREADS}",
    ),
    "bound": (
        "shapes",
        "result 0 has shape (6,) for arguments of shape (3,), and declared is (<=3,)",
        "result=lambda x: tf.TensorSpec([x.shape[0] * 2], tf.float32)",
    ),
    "rule": ("shapes", "IndexError", "result=lambda x: tf.TensorSpec(x.shape, tf.float32)"),
    "prints": ("purity", "calls print 4 characters", STATEFUL),
    "generator": ("purity", "each call changes NumPy's global random generator", STATEFUL),
    "method": ("purity", "each call changes attribute calls", STATEFUL),
    "hidden gradient": (
        "gradient",
        "the gradient of argument 0 is wrong",
        "tf.custom_gradient    # or TensorFlow's ops alone in the function",
    ),
}


@pytest.mark.parametrize("fault", TRIED)
def test_fault_is_the_one_finding(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, *args = TRIED[fault]
    with pytest.raises(hostcall.CheckError) as caught:
        hostcall.check(make(), *(args or [VECTOR]), skip=["name"])
    (finding,) = caught.value.report.findings
    check, what, line = FOUND[fault]
    assert (finding.check, finding.line) == (check, line)
    assert what in finding.what
    assert finding.cause
    # Prints are shown, too.
    assert (capsys.readouterr().out.count("x\n") >= 2) == (fault == "prints")


def test_each_check_finds_a_fault() -> None:
    # Names are looked for in modules that the tests of it write; JAX is in tests/jax.
    found = {check for check, _, _ in FOUND.values()} | {"name", "jax"}
    assert found == {*CHECKS}
