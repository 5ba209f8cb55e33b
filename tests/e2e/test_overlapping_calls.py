"""Concurrent calls begin early and are waited for late, in compiled programs.

The functions wait for one another, so that a program whose calls do not overlap fails.
"""

import concurrent.futures
import functools
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import prepared
from tests.support import executor_functions
from tests.support.e2e.journals import Journal
from tests.support.helpers import assert_equal, failure, gradient_of, jitted, like
from tests.support.threads import PATIENCE, meeting

X = tf.constant([1.0, 2.0, 3.0])


def stateless(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    how.setdefault("concurrent", "executor" not in how)
    return hostcall.callback(function, result=how.pop("result", like), stateful=False, **how)


def declared(op: Any, function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    hostcall.declare(function, concurrent=True, result=like, **how)
    stateful = {} if "pure" in how else {"stateful": False}
    return lambda x: tf.ensure_shape(op(function, [x], x.dtype, **stateful), x.shape)


pure = functools.partial(declared, tf.numpy_function, pure=True)
WAYS: dict[str, Callable[..., Any]] = {
    "callback": stateless,
    "numpy_function": functools.partial(declared, tf.numpy_function),
    "pure numpy_function": pure,
    "pure py_function": functools.partial(declared, tf.py_function, pure=True),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert prepared().count_early_calls() == 0


@each_way
@pytest.mark.parametrize(("route", "count"), [("auto", 8), ("partition", 4)])
def test_independent_calls_overlap(way: Any, route: str, count: int) -> None:
    meet = way(meeting(count))
    program = jitted(lambda x: tf.add_n([meet(x + float(i)) for i in range(count)]))
    with hostcall.scope(route=route):
        for _ in range(2):
            np.testing.assert_array_equal(program(X), 2.0 * count * X + count * (count - 1.0))


def test_calls_in_a_loop_overlap_in_each_iteration() -> None:
    meet = stateless(meeting(2))

    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            x = meet(x) - meet(0.5 * x)
        return x

    np.testing.assert_array_equal(jitted(program)(X), X)


@pytest.mark.custom_call("XLA alone moves a call out of a loop")
def test_a_call_that_is_the_same_in_each_iteration_is_made_once() -> None:
    calls: list[int] = []
    same, other = stateless(lambda x: (calls.append(1), x)[1]), stateless(lambda x: x + x)

    def program(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            x = other(x) - same(y)
        return x

    np.testing.assert_array_equal(jitted(program)(X, X), X)
    assert len(calls) == 1


def test_calls_in_branches_and_inner_functions_overlap() -> None:
    other = stateless(meeting(2))

    def function_of_two_calls() -> Callable[[tf.Tensor], tf.Tensor]:
        """With a barrier of its own: XLA chooses which of another function's calls begin first."""
        meet = stateless(meeting(2))
        return tf.function(lambda x: meet(x) + meet(x + 1.0))

    first, second = function_of_two_calls(), function_of_two_calls()

    @jitted
    def program(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
        chosen = tf.cond(choice, lambda: other(x) + other(x + 1.0), lambda: x)
        return first(x) + second(chosen)

    np.testing.assert_array_equal(program(X, tf.constant(False)), 8.0 * X + 4.0)
    np.testing.assert_array_equal(program(X, tf.constant(True)), 4.0 * X + 2.0 + 16.0 * X + 10.0)


def test_a_call_goes_on_beside_calls_with_side_effects() -> None:
    told = threading.Event()

    def waits(x: Any) -> Any:
        assert told.wait(PATIENCE)
        return x

    def tells(x: Any) -> Any:
        journal.note("tells")
        told.set()
        return x

    journal, wait = Journal(), stateless(waits)
    tell = hostcall.callback(tells, result=like)

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        waited = wait(x)
        return journal.numpy("last", waited + tell(x))

    np.testing.assert_array_equal(program(X), 2.0 * X + 1.0)
    assert journal.tags() == ["tells", "last"]


def test_side_effects_keep_their_order() -> None:
    journal, meet = Journal(), stateless(meeting(2))

    @jitted
    def program(x: tf.Tensor) -> Any:
        y = journal.numpy("a", meet(x))
        z = journal.numpy("b", x)
        w = journal.numpy("c", meet(x + 1.0))
        return y, z, w, journal.numpy("d", x)

    for count in (1, 2):
        program(X)
        assert journal.tags() == ["a", "b", "c", "d"] * count


@pytest.mark.parametrize(
    "dtype", [tf.bool, tf.bfloat16, tf.dtypes.experimental.int4, tf.complex64, tf.int64]
)
def test_dtypes_are_kept(dtype: tf.DType) -> None:
    dtypes = []
    same = stateless(lambda x: (dtypes.append(x.dtype), x)[1])

    def program(function: Any, x: tf.Tensor) -> Any:
        # Stock TensorFlow takes packed int4 for arguments of a program that are not.
        given = [tf.cast(part, dtype) for part in (x, x[:0], -x)]
        return [tf.cast(function(part), tf.int32) for part in given]

    x = tf.constant([1, 0, 3], tf.int8)
    assert_equal(jitted(functools.partial(program, same))(x), program(tf.identity, x))
    assert dtypes == [dtype.as_numpy_dtype] * 3


@pytest.mark.parametrize("fails", [0, 1, 7])
def test_an_error_is_that_of_its_call_and_nothing_is_left(fails: int) -> None:
    meet = meeting(8)
    wrong = [fails]

    def call(i: int, x: Any) -> Any:
        meet(x)
        if i in wrong:
            raise KeyError(f"of call {i}")
        return x

    calls = [stateless(functools.partial(call, i)) for i in range(8)]
    program = jitted(lambda x: tf.add_n([one(x) for one in calls]))
    for _ in range(3):
        error = failure(program, X)
        assert f"of call {fails}" in str(error)
        assert isinstance(hostcall.last_error(error), KeyError)
    wrong.clear()
    np.testing.assert_array_equal(program(X), 8.0 * X)


def test_a_result_of_another_shape_is_an_error_of_its_op() -> None:
    meet = meeting(2)
    bad = stateless(lambda x: meet(x)[:1])
    good = stateless(meet)
    error = failure(jitted(lambda x: bad(x) + good(x)), X)
    assert "has shape (1,), but its declared shape is (3,)" in str(error)


def test_gradients_overlap() -> None:
    meet = stateless(meeting(2))
    squared = stateless(lambda x: x * x, grad=lambda i, r, upstream: meet(i[0]) * upstream)
    program = jitted(lambda x: gradient_of(lambda x: squared(x) + squared(x + 1.0), x))
    np.testing.assert_array_equal(program(X), 2.0 * X + 2.0 * (X + 1.0))


def test_the_same_call_twice() -> None:
    calls: list[int] = []
    function = stateless(lambda x: (calls.append(1), x)[1])
    program = jitted(lambda x, w: (function(x) + function(x), tf.linalg.matmul(w, w)))
    total, product = program(X, tf.eye(3))
    np.testing.assert_array_equal(total, 2.0 * X)
    np.testing.assert_array_equal(product, tf.eye(3))
    assert 1 <= len(calls) <= 2


def test_pure_calls_run_once_each_and_unused_ones_too_whose_error_is_raised() -> None:
    calls: list[float] = []

    def noted(x: Any) -> Any:
        calls.append(float(x[0]))
        return x if x[0] < 12.0 else int("nobody uses this")

    call = pure(noted)
    program = jitted(lambda x: (call(x + 10.0), call(x) + call(x + 1.0))[1])
    program(X)
    assert sorted(calls) == [1.0, 2.0, 11.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="nobody uses this"):
        program(X + 1.0)


def test_processes_run_calls_side_by_side() -> None:
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(
        2, context, executor_functions.set_meeting, (context.Barrier(2),)
    ) as pool:
        meet = stateless(executor_functions.meet, executor=pool)
        program = jitted(lambda x: meet(x) + meet(x + 1.0))
        np.testing.assert_array_equal(program(X), 4.0 * X + 2.0)
