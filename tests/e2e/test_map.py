"""`hostcall.map`: one call as many, which means the same as one."""

import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support.helpers import (
    assert_alike,
    assert_close,
    assert_says,
    each_mode,
    failure,
    jitted,
    like,
)
from tests.support.process_pools import two_processes as processes
from tests.support.threads import PATIENCE, meeting, running

X = tf.reshape(tf.range(14.0), [7, 2])
pytestmark = pytest.mark.usefixtures("pools_end")


def mapped(function: Callable[..., Any], executor: Any, **how: Any) -> Callable[..., Any]:
    return hostcall.callback(hostcall.map(function, executor=executor, **how), result=like)


def noting_sizes(sizes: list[int]) -> Callable[..., Any]:
    def double(x: Any) -> Any:
        sizes.append(len(x))
        return x * 2

    return double


@each_mode
def test_a_batch_is_divided_among_processes(mode: Any) -> None:
    place = hostcall.map(functions.place_of_each, executor=processes)
    result = tf.TensorSpec([7, 2], tf.float64)
    found = mode(lambda x: tf.numpy_function(place, [2.0 * x], result) + 0.0)(X).numpy()
    np.testing.assert_array_equal(found[:, 1], [3, 3, 3, 4, 4, 4, 4])
    assert os.getpid() not in found[:, 0]


@each_mode
def test_chunks_run_at_the_same_time(mode: Any, threads: Any) -> None:
    np.testing.assert_array_equal(mode(mapped(meeting(3), threads))(X), 2.0 * X)


@each_mode
@pytest.mark.parametrize(
    ("size", "chunks", "expected"),
    [(7, None, [2, 2, 3]), (7, 5, [1, 1, 1, 2, 2]), (2, None, [1, 1]), (0, None, [0]), (7, 1, [7])],
)
def test_sizes_of_chunks(
    size: int, chunks: int | None, expected: list[int], mode: Any, threads: Any
) -> None:
    sizes: list[int] = []
    double = hostcall.map(noting_sizes(sizes), executor=threads, chunks=chunks)
    x = tf.ones([size, 2])
    assert_alike(mode(hostcall.callback(double, result=like))(x), 2.0 * x)
    assert sorted(sizes) == expected
    assert double(x.numpy()).dtype == np.float32


@each_mode
def test_axes_and_structures(mode: Any) -> None:
    both = hostcall.callback(
        hostcall.map(functions.sums, executor=processes, in_axes=({"a": 0, "b": 0},)),
        result=lambda pair: {"sum": pair["a"], "difference": pair["b"]},
    )
    turned = hostcall.callback(
        hostcall.map(np.transpose, executor=processes, in_axes=-1),
        result=lambda x: tf.TensorSpec(x.shape[::-1], x.dtype),
    )
    scale = mapped(functions.scaled, processes)
    program = mode(lambda x: (both({"a": x, "b": 2.0 * x}), turned(x), scale(x, factor=3.0)))
    sums = {"sum": 3.0 * X, "difference": -X}
    assert_alike(program(X), (sums, tf.transpose(X), 3.0 * X))


def test_arguments_that_are_passed_whole_are_each_calls_own(threads: Any) -> None:
    def adds_in_place(x: Any, w: Any) -> Any:
        w += 1
        return x * w

    w = np.arange(2, dtype=np.float32)
    divided = hostcall.map(adds_in_place, executor=threads, in_axes=(0, None))
    np.testing.assert_array_equal(divided(X.numpy(), w), X.numpy() * (w + 1))
    np.testing.assert_array_equal(w, [0.0, 1.0])


# Of `functions.scaled_by`: a callback, and TensorFlow code.
GRADIENTS = {
    "callback": hostcall.callback(functions.slope_of_scaled_by, result=lambda i, *_: i),
    "code": lambda i, _, upstream: (upstream * i[1], tf.reduce_sum(upstream * i[0], 0)),
}


@each_mode
@pytest.mark.parametrize("grad", GRADIENTS.values(), ids=GRADIENTS)
def test_the_gradient_is_mapped(grad: Any, mode: Any) -> None:
    callback = hostcall.callback(
        functions.scaled_by, result=like, grad=grad, executor=processes, stateful=False
    )
    by = hostcall.map(callback, in_axes=(0, None))

    def program(x: tf.Tensor, w: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = by(x, w)
        return y, *tape.gradient(y, [x, w], output_gradients=x)

    w = tf.constant([2.0, 3.0])
    assert_close(mode(program)(X, w), (X * w, X * w, tf.reduce_sum(X * X, 0)))


@each_mode
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (functions.fails_at_5, functions.SimulatorError),
        (functions.ends_at_5, hostcall.ExecutorError),
    ],
)
def test_exceptions_name_the_chunk(function: Any, kind: Any, mode: Any) -> None:
    fails = mapped(function, processes)
    error = failure(mode(lambda x: fails(x)), X)
    assert isinstance(hostcall.last_error(error), kind)
    name = function.__name__
    assert_says(error.message, f"chunk 1 of 2 (elements 0 to 2) of hostcall.map of {name}")
    np.testing.assert_array_equal(mode(lambda x: fails(x))(X[3:]), X[3:])


# Of a pool that breaks while it takes a call Python's own thread may fail so, before 3.12.
@pytest.mark.filterwarnings(
    "ignore:(?s).*dictionary changed size:pytest.PytestUnhandledThreadExceptionWarning"
)
@each_mode
def test_chunks_whose_workers_died_are_retried(mode: Any, tmp_path: Any) -> None:
    once = functools.partial(functions.ends_once, folder=str(tmp_path))
    divided = hostcall.map(once, executor=processes)
    double = hostcall.callback(divided, result=like, stateful=False, retries=9)
    np.testing.assert_array_equal(mode(lambda x: double(x))(X), 2.0 * X)
    assert len(list(tmp_path.iterdir())) == 2


class ByHand:
    """An executor whose calls the test makes."""

    def __init__(self) -> None:
        self.futures: list[concurrent.futures.Future[Any]] = []
        self.are_there = threading.Event()
        self._calls: list[Callable[[], Any]] = []

    def submit(self, function: Any, /, *args: Any) -> Any:
        self.futures.append(concurrent.futures.Future())
        self._calls.append(functools.partial(function, *args))
        if len(self.futures) == 3:
            self.are_there.set()
        return self.futures[-1]

    def make(self, number: int) -> None:
        try:
            self.futures[number].set_result(self._calls[number]())
        except Exception as error:
            self.futures[number].set_exception(error)


def test_if_a_chunk_fails_no_other_begins_or_is_left_running() -> None:
    executor, is_over, was_over = ByHand(), threading.Event(), []

    def make_calls() -> None:
        executor.are_there.wait(PATIENCE)
        first, second, third = executor.futures
        first.set_running_or_notify_cancel()
        second.set_running_or_notify_cancel()
        is_cancelled = threading.Event()
        third.add_done_callback(lambda _: is_cancelled.set())
        executor.make(0)
        is_cancelled.wait(PATIENCE)
        was_over.append(is_over.is_set())
        executor.make(1)

    mapped = hostcall.map(functions.fails_at_5, executor=executor, chunks=3)
    with running([make_calls], is_over), pytest.raises(ValueError, match="5"):
        mapped(np.arange(5.0, 8.0))
    assert executor.futures[2].cancelled()
    assert executor.futures[1].done()
    assert was_over == [False]


def test_results_of_a_mapped_callback_are_kept(threads: Any) -> None:
    sizes: list[int] = []
    double = hostcall.callback(noting_sizes(sizes), result=like, stateful=False, memo=True)
    program = jitted(hostcall.map(double, executor=threads))
    for _ in range(2):
        np.testing.assert_array_equal(program(X), 2.0 * X)
    assert len(sizes) == 3


def test_the_executor_may_be_that_of_the_function(threads: Any) -> None:
    def double(x: Any) -> Any:
        return x * 2

    with pytest.raises(TypeError, match="no executor is given or declared"):
        hostcall.map(double)
    hostcall.declare(double, executor=threads)
    np.testing.assert_array_equal(hostcall.map(double)(X.numpy()), 2 * X)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (hostcall.callback(abs, result=like, kind="eager"), {}, 'kind="numpy"'),
        (hostcall.callback(abs, result=like, borrow=True), {}, "borrow=True and out=True lend"),
        (3, {}, r"hostcall\.map wants a function"),
        (np.cumsum, {"executor": 3}, "neither an executor"),
        (np.cumsum, {"in_axes": None}, "divides none"),
        *(
            (np.cumsum, {"chunks": chunks}, "is not a positive number")
            for chunks in (0, -1, 2.0, True)
        ),
    ],
)
def test_what_cannot_be_mapped_is_refused(
    function: Any, options: Any, message: str, threads: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hostcall.map(function, **{"executor": threads, **options})
