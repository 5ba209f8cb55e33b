"""Calls run one at a time where nobody lets them overlap.

The large programs have as many and as large values as XLA wants for its own threads.
"""

import concurrent.futures
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted, like, partitioned, plain, stateless_py_func
from tests.support.threads import PATIENCE, Alone, in_threads, meeting

SMALL, LARGE = tf.constant([1.0, 2.0]), tf.range(100_000, dtype=tf.float32)
CALLS = 12


def callback(function: Callable[..., Any]) -> Callable[..., Any]:
    return hostcall.callback(function, result=like, stateful=False)


def declared_pure(op: Any) -> Callable[..., Any]:
    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        pure = hostcall.declare(lambda x: function(x), pure=True)
        return lambda x: op(pure, [x], like(x))

    return of


def with_effects(*ops: Any) -> Callable[..., Any]:
    """Calls by each of these ops in turn."""

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        in_turn = itertools.cycle(ops)
        return lambda x: next(in_turn)(function, [x], like(x))

    return of


def callbacks_with_and_without_effects(function: Callable[..., Any]) -> Callable[..., Any]:
    ways: list[Any] = [callback(function), hostcall.callback(function, result=like)]
    in_turn = itertools.cycle(ways)
    return lambda x: next(in_turn)(x)


def inside_a_plain_function(program: Callable[..., Any]) -> Callable[..., Any]:
    inner = jitted(program)
    return plain(lambda x: inner(x))


WAYS = {
    "callback": callback,
    "py_func": lambda function: lambda x: stateless_py_func(function, [x], like(x)),
    "pure numpy_function": declared_pure(tf.numpy_function),
    "pure py_function": declared_pure(tf.py_function),
    "numpy_function": with_effects(tf.numpy_function),
    "py_function": with_effects(tf.py_function),
    "both ops in turn": with_effects(tf.numpy_function, tf.py_function),
    "callbacks in turn": callbacks_with_and_without_effects,
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def several(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [call(x + float(i)) for i in range(CALLS)]


def with_loops_and_branches(call: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: tf.Tensor) -> list[tf.Tensor]:
        results = [call(x + float(i)) for i in range(4)]
        y = x
        for i in tf.range(3):
            y = y + call(x * tf.cast(i, tf.float32))
        z = call(x) if x[1] > 0.0 else x
        return [*results, y, z, *[call(x - float(i + 1)) for i in range(4)]]

    return program


@pytest.mark.pairwise
@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
@each_way
@pytest.mark.parametrize("mode", [jitted, partitioned, inside_a_plain_function])
@pytest.mark.parametrize("program", [several, with_loops_and_branches])
def test_calls_do_not_overlap(program: Any, mode: Any, way: Any, x: tf.Tensor) -> None:
    alone = Alone()
    function = mode(program(way(alone)))
    for _ in range(3):
        function(x)
    assert (alone.overlaps, alone.calls) == (0, 3 * CALLS)


@pytest.mark.custom_call("TensorFlow's kernels change threads")
@each_way
def test_calls_of_a_small_program_run_on_its_thread(way: Any) -> None:
    threads = set()

    def note(x: Any) -> Any:
        threads.add(threading.get_ident())
        threading.Event().wait(0.001)  # long enough to be worth a thread
        return x

    function = jitted(several(way(note)))
    for _ in range(3):
        function(SMALL)
    assert threads == {threading.get_ident()}


def test_a_concurrent_call_waits_for_no_other() -> None:
    """The other one ends when it has run."""
    told = threading.Event()

    def wait(x: Any) -> Any:
        assert told.wait(PATIENCE)
        return x

    waits = hostcall.callback(wait, result=like, stateful=False, concurrent=True)
    tells = callback(lambda x: (told.set(), x)[1])
    np.testing.assert_array_equal(jitted(lambda x: waits(x) + tells(x))(SMALL), 2.0 * SMALL)


def test_runs_on_several_threads_do_not_wait_for_one_another() -> None:
    program = jitted(callback(meeting(4)))

    def run(i: int) -> None:
        np.testing.assert_array_equal(program(LARGE + float(i)), 2.0 * (LARGE + float(i)))

    in_threads(4, run)


def test_an_executor_with_one_worker_lets_nothing_overlap() -> None:
    """Calls that its own thread waits for run on the threads of the program."""
    alone = Alone()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        inner = hostcall.callback(alone, result=like, stateful=False, executor=pool)
        program = jitted(several(inner))
        nested = lambda x: (program(x), x)[1]  # noqa: E731
        outer = hostcall.callback(nested, result=like, stateful=False, executor=pool)
        jitted(outer)(LARGE)
    assert (alone.overlaps, alone.calls) == (0, CALLS)


def test_what_is_no_bool_or_has_an_order_is_refused() -> None:
    with pytest.raises(TypeError, match="concurrent='yes' is neither True"):
        hostcall.callback(like, result=like, stateful=False, concurrent="yes")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"hostcall.callback: concurrent=True .* stateful=False"):
        hostcall.callback(like, result=like, concurrent=True)
    with pytest.raises(ValueError, match="concurrent=True lets calls overlap"):
        hostcall.declare(like, wait=False, concurrent=True)
    same = hostcall.declare(lambda x: x, concurrent=True)
    with pytest.raises(ValueError, match=r"concurrent=True .* hostcall.declare\(function, pure"):
        jitted(lambda x: tf.numpy_function(same, [x], like(x)))(SMALL)
