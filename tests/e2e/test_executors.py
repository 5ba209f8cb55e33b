"""`executor=` and `retries=`: calls in other threads and processes mean the same as calls here."""

import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from hostcall_runtime import _shared_memory
from tests.support import executor_functions as functions
from tests.support import process_pools
from tests.support.helpers import (
    assert_equal,
    assert_says,
    each_mode,
    failure,
    jitted,
    like,
    value_and_gradient,
)
from tests.support.process_pools import one_process as processes
from tests.support.process_pools import two_processes
from tests.support.threads import PATIENCE, in_threads, meeting
from tests.support.versions import on_the_callers_thread

X = tf.constant([1.0, 2.0, 3.0])
DECORATORS: list[Any] = [tf.numpy_function, tf.py_function]

pytestmark = pytest.mark.usefixtures("pools_end")


def on(executor: Any, function: Callable[..., Any], result: Any = like, **how: Any) -> Any:
    return hostcall.callback(function, result=result, executor=executor, **how)


def raised_by(program: Any, *args: Any) -> Any:
    return hostcall.last_error(failure(program, *args))


def refusal(program: Any, *args: Any) -> hostcall.ExecutorError:
    raised = raised_by(program, *args)
    assert isinstance(raised, hostcall.ExecutorError)
    return raised


@each_mode
def test_stateful_calls_run_once_each_in_order(mode: Any) -> None:
    count = on(processes, functions.counted)
    journal = on(processes, functions.journal, lambda x: hostcall.BoundedSpec([1000], tf.float32))

    def program(n: tf.Tensor) -> tf.Tensor:
        first = count(tf.constant(-1.0))
        for i in tf.range(n):
            first += 0.0 * count(tf.cast(i, tf.float32))
        return first

    start = mode(program)(tf.constant(10))
    called = journal(X).numpy()
    np.testing.assert_array_equal(called[int(start) - 1 :], [-1.0, *range(10)])


@each_mode
def test_stock_ops_run_on_a_thread_pool(mode: Any, threads: Any) -> None:
    names: set[str] = set()

    def noting(x: Any) -> Any:
        names.add(threading.current_thread().name)
        return x + 1

    hostcall.declare(noting, result=like, executor=threads)
    program = mode(lambda x: [op(noting, [x], tf.float32) for op in DECORATORS])
    assert_equal(program(X), [X + 1.0] * 2)
    np.testing.assert_array_equal(tf.numpy_function(noting, [X], tf.float32), X + 1.0)
    assert all(name.startswith("executor") for name in names)


@each_mode
@pytest.mark.parametrize("pure", [False, True])
def test_gradients_of_eager_functions(pure: bool, mode: Any, threads: Any) -> None:
    cube = on(threads, lambda x: x**3, kind="eager", pure=pure)
    y, slope = mode(lambda x: value_and_gradient(cube, x))(X)
    np.testing.assert_allclose(y, X**3)
    np.testing.assert_allclose(slope, 3.0 * X**2)


@each_mode
def test_results_are_checked(mode: Any) -> None:
    wrong = on(processes, functions.wrong_shape)
    assert_says(failure(mode(lambda x: wrong(x)), X), "(7,)", "wrong_shape")


@each_mode
def test_exceptions_of_threads_are_those_of_the_function(mode: Any, threads: Any) -> None:
    def broken(x: Any) -> Any:
        raise concurrent.futures.BrokenExecutor("an inner pool")

    error = failure(mode(lambda x: on(threads, broken)(x)), X)
    assert isinstance(hostcall.last_error(error), concurrent.futures.BrokenExecutor)
    assert "in broken\n" in error.message
    assert "concurrent/futures" not in error.message
    if mode is jitted:  # in plain graphs, as ever, the frames of what calls it are shown as well
        assert "hostcall_runtime" not in error.message


@each_mode
def test_a_worker_that_dies_fails_its_call_alone(mode: Any) -> None:
    ends = on(processes, functions.ends)
    raised = refusal(mode(lambda x: ends(x)), X)
    assert isinstance(raised.__cause__, concurrent.futures.BrokenExecutor)
    next_call = "The next call has a new executor."
    retries = "declare a pure function with retries=2"
    assert_says(raised, "of ends (", "was terminated abruptly", next_call, retries)
    np.testing.assert_array_equal(mode(on(processes, functions.doubled))(X), 2.0 * X)


@pytest.mark.full_run("kills a worker")
def test_a_pool_that_broke_between_calls_is_replaced() -> None:
    double = jitted(on(processes, functions.doubled))
    place = on(processes, functions.place, tf.TensorSpec([3], tf.float64))
    victim = int(place(X)[0])
    pool = process_pools.made[-1]
    os.kill(victim, 9)
    with contextlib.suppress(concurrent.futures.BrokenExecutor):
        while True:
            pool.submit(int).result(PATIENCE)
    np.testing.assert_array_equal(double(X), 2.0 * X)
    assert process_pools.made[-1] is not pool


def test_a_broken_pool_of_the_users_says_what_to_write() -> None:
    with processes() as pool:
        double = jitted(on(pool, functions.doubled))
        np.testing.assert_array_equal(double(X), 2.0 * X)
        raised_by(jitted(on(pool, functions.ends)), X)
        raised = refusal(double, X)
    assert_says(raised, "This executor makes no more calls", "executor=workers")


@each_mode
def test_late_calls_fail_and_keep_what_they_were_given(mode: Any, threads: Any) -> None:
    go_on, has_ended = threading.Event(), threading.Event()
    seen = []

    def waits(x: Any) -> Any:
        go_on.wait(PATIENCE)
        seen.append(x.copy())
        has_ended.set()
        return x

    program = mode(lambda x: on(threads, waits, timeout=1.0)(tf.exp(x)))
    raised = raised_by(program, X)
    assert isinstance(raised, TimeoutError)
    assert_says(raised, "still runs on its executor", "in waits")
    go_on.set()
    assert has_ended.wait(PATIENCE)
    np.testing.assert_allclose(seen[0], np.exp(X), rtol=1e-6)


@each_mode
def test_others_run_while_a_call_waits(mode: Any, threads: Any) -> None:
    program = mode(on(threads, meeting(2)))
    in_threads(2, lambda _: np.testing.assert_array_equal(program(X), 2.0 * X))


@on_the_callers_thread
@pytest.mark.custom_call("TensorFlow's kernels change threads between the calls")
def test_a_call_of_the_executors_own_thread_runs_there(threads: Any) -> None:
    names: list[str] = []

    def noting(x: Any) -> Any:
        names.append(threading.current_thread().name)
        return x * 2

    inner = jitted(on(threads, noting))
    outer = jitted(on(threads, lambda x: noting(inner(x).numpy())))
    np.testing.assert_array_equal(outer(X), 4.0 * X)
    assert names == ["executor_0"] * 2


@pytest.mark.parametrize("option", ["borrow", "out"])
def test_borrowed_views_are_refused(option: str, threads: Any) -> None:
    with pytest.raises(ValueError, match=f"{option}=True lends"):
        on(threads, functions.doubled, **{option: True})


def test_eager_functions_want_threads() -> None:
    with processes() as pool, pytest.raises(ValueError, match=r"is not a ThreadPoolExecutor"):
        on(pool, functions.doubled, kind="eager")
    raised = refusal(jitted(on(processes, functions.doubled, kind="eager")), X)
    assert "is not a ThreadPoolExecutor" in str(raised)


def test_a_forked_child_makes_its_own(run_python: Callable[..., str]) -> None:
    script = """
import concurrent.futures, os, sys
import tensorflow as tf, hostcall

pool = concurrent.futures.ThreadPoolExecutor(1)
made = lambda: concurrent.futures.ThreadPoolExecutor(1)
like = lambda x: tf.TensorSpec(x.shape, x.dtype)
double = hostcall.callback(lambda x: x * 2, result=like, executor=made)
lost = hostcall.callback(lambda x: x * 2, result=like, executor=pool)
assert float(double(3.0)) + float(lost(3.0)) == 12.0
child = os.fork()
if child == 0:
    assert float(double(3.0)) == 6.0
    try:
        lost(3.0)
    except tf.errors.OpError as error:
        assert "was forked from" in str(hostcall.last_error(error))
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert float(double(3.0)) == 6.0
print("both")
"""
    assert run_python(script) == "both\n"


# `retries=`: calls of pure functions are made again where their worker has died.


@each_mode
@pytest.mark.parametrize("how", [{"pure": True}, {"memo": True}])
def test_calls_whose_worker_died_are_made_again(how: Any, mode: Any, tmp_path: Path) -> None:
    double = functools.partial(functions.ends_once, folder=str(tmp_path))
    hostcall.declare(double, result=like, executor=processes, retries=2, **how)
    program = mode(lambda x: tf.numpy_function(double, [x], tf.float32))
    np.testing.assert_array_equal(program(X), 2.0 * X)
    assert len(list(tmp_path.iterdir())) == 1


@each_mode
def test_the_last_death_is_told(mode: Any) -> None:
    before = len(process_pools.made)
    ends = on(processes, functions.ends, stateful=False, retries=2)
    raised = refusal(mode(lambda x: ends(x)), X)
    times = "The call was made 3 times, as often as its retries allow."
    assert_says(raised, "was terminated abruptly", times)
    assert len(process_pools.made) >= before + 2


@each_mode
def test_exceptions_are_no_reason(mode: Any, threads: Any) -> None:
    calls = []

    def fails(x: Any) -> Any:
        calls.append(x)
        raise functions.SimulatorError(3)

    failing = on(threads, fails, stateful=False, retries=2)
    assert isinstance(raised_by(mode(lambda x: failing(x)), X), functions.SimulatorError)
    assert len(calls) == 1


def test_the_timeout_is_for_all_attempts_together() -> None:
    lasts = on(processes, functions.lasts, stateful=False, retries=2, timeout=0.05)
    assert isinstance(raised_by(lasts, tf.constant(0.5)), TimeoutError)


def test_stateful_functions_and_what_is_no_number_of_calls_are_refused(threads: Any) -> None:
    no_numbers: Any = (-1, 1.0, True, "2")
    for retries in no_numbers:
        with pytest.raises(ValueError, match="must be a non-negative integer"):
            hostcall.declare(executor=processes, pure=True, retries=retries)
    with pytest.raises(ValueError, match=r"retries=2 .* stateful=False"):
        on(processes, np.cumsum, retries=2)

    def double(x: Any) -> Any:
        return x * 2

    hostcall.declare(double, result=like, executor=threads, retries=2)
    for op in DECORATORS:
        with pytest.raises(ValueError, match=r"the stateful op of .*double.* pure=True"):
            op(double, [X], tf.float32)
    result = tf.numpy_function(double, [X], tf.float32, stateful=False)
    np.testing.assert_array_equal(result, 2.0 * X)


# Large arguments of compiled calls to other processes: they lie where these read them.

SIZE = 1 << 17  # half a MiB of float32


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the arrays that this process copies into shared memory."""
    shapes: list[tuple[int, ...]] = []
    put = _shared_memory.SharedBlock.put

    def spy(block: _shared_memory.SharedBlock, array: Any) -> Any:
        shapes.append(array.shape)
        return put(block, array)

    monkeypatch.setattr(_shared_memory.SharedBlock, "put", spy)
    return shapes


def values(first: float = 0.0) -> Any:
    return np.arange(SIZE, dtype=np.float32) % 100 + np.float32(first)


def by_tensorflow(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    program = jitted(on(processes, function, **how))
    return lambda *args: program(*map(tf.constant, args)).numpy()


def by_jax(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    def call(x: Any, *args: Any) -> Any:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return hostcall.jax.call(function, result, x, *args, executor=processes, **how)

    program = jax.jit(call)
    return lambda *args: np.asarray(program(*args))


each_framework = pytest.mark.parametrize("compiled", [by_tensorflow, by_jax])


@pytest.mark.custom_call("the stock kernel makes the arrays of host ops")
@each_framework
def test_large_arguments_are_not_copied_again(compiled: Any, copied: list[tuple[int, ...]]) -> None:
    subtract = compiled(np.subtract)
    subtract(values(), values())  # the pool is made by the first call
    copied.clear()
    np.testing.assert_array_equal(subtract(values(3.0), values(1.0)), np.full(SIZE, 2.0))
    assert copied == []


@each_framework
def test_what_a_function_keeps_stays(compiled: Any) -> None:
    keeps, double, first_kept = map(compiled, (functions.keeps, functions.doubled, functions.last))
    for first in range(40):
        np.testing.assert_array_equal(keeps(values(first)), values(first))
        double(values(-1.0))
        assert first_kept(values())[0] == first
    compiled(functions.forgets)(values())


def test_memory_is_used_again() -> None:
    double = by_tensorflow(functions.doubled)
    for first in range(42):
        np.testing.assert_array_equal(double(values(first)), 2 * values(first))
        if first == 1:
            before = functions.open_blocks(0)
    assert functions.open_blocks(0) <= before


def test_a_second_attempt_finds_large_arguments_as_they_were(tmp_path: Any) -> None:
    by_tensorflow(functions.doubled)(values())  # makes the pool
    dies_once = functions.NegatesAndDiesOnce(str(tmp_path / "died"))
    negated = by_tensorflow(dies_once, pure=True, retries=1)
    np.testing.assert_array_equal(negated(values()), -values())
    assert os.path.exists(dies_once.path)


@pytest.mark.custom_call("the stock kernel makes the arrays of host ops")
def test_parts_of_batches_lie_there_too(copied: list[tuple[int, ...]]) -> None:
    mapped = hostcall.map(
        functions.added_in_place, executor=two_processes, in_axes=(0, None), chunks=2
    )
    program = jitted(hostcall.callback(mapped, result=like))
    x = np.stack([values(row) for row in range(4)])
    for first in (5.0, 6.0):
        copied.clear()
        total = program(tf.constant(x), tf.constant(values(first))).numpy()
        np.testing.assert_array_equal(total, x + values(first))
    assert copied == [(SIZE,)] * 2  # what is passed whole: each part has its own


def test_more_large_arguments_than_there_is_memory_for() -> None:
    double = on(processes, functions.doubled)
    program = jitted(lambda *xs: [double(x) for x in xs])
    arrays = [values(first) for first in range(70)]
    assert_equal(program(*map(tf.constant, arrays)), [2 * x for x in arrays])


@pytest.mark.parametrize("shape", [(), (3,), (0, SIZE), (SIZE,), (2, SIZE)])
def test_one_array_in_the_place_of_two(shape: tuple[int, ...]) -> None:
    add, x = on(processes, functions.added_in_place), np.ones(shape, np.float32)
    program = jitted(lambda x: add(x, x))
    for _ in range(2):
        np.testing.assert_array_equal(program(tf.constant(x)), 2 * x)
