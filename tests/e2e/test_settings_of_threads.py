"""A call sees the settings of who started its program, on whatever thread it runs."""

import concurrent.futures
import contextvars
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import IS_FAKE_GPU
from tests.support.helpers import eagerly, jitted, like
from tests.support.stress.programs import under_a_tape
from tests.support.threads import in_threads

SMALL, LARGE = tf.constant([1.0, 2.0]), tf.range(100_000, dtype=tf.float32)
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="nothing")


class Looking:
    """A function that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.seen.append((np.geterr()["divide"], VARIABLE.get()))
        return x


def assert_settings_are_seen(look: Looking, run: Callable[[], Any], count: int) -> None:
    """As many calls of a run see what is set where it is started."""
    for value in ("one", "two"):
        look.seen.clear()
        token = VARIABLE.set(value)
        with np.errstate(divide="ignore"):
            run()
        VARIABLE.reset(token)
        assert look.seen == [("ignore", value)] * count


def called(**how: Any) -> Callable[..., Any]:
    return lambda look: hostcall.callback(look, result=like, **how)


concurrently = called(stateful=False, concurrent=True)
in_turns = called(stateful=False)
with_effects = called()
on_an_executor = called(executor=functools.partial(concurrent.futures.ThreadPoolExecutor, 2))
within_a_time = called(timeout=60.0)
each_way = pytest.mark.parametrize("way", [in_turns, concurrently])


# A GPU's programs make their calls on the thread that launches them. Those of the fake one are for
# the CPU: concurrent calls, and those of large programs, come on XLA's threads.
calls_on_threads_of_xla = pytest.mark.skipif(IS_FAKE_GPU, reason="no GPU calls on XLA's threads")


@pytest.mark.parametrize("x", [SMALL, pytest.param(LARGE, marks=calls_on_threads_of_xla)])
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(concurrently, marks=calls_on_threads_of_xla),
        *(in_turns, with_effects, on_an_executor, within_a_time),
    ],
)
def test_calls_see_what_the_starter_sees(way: Any, x: tf.Tensor) -> None:
    look = Looking()
    call = way(look)
    program = jitted(lambda x: [call(x + float(i)) for i in range(12)])
    assert_settings_are_seen(look, lambda: [program(x) for _ in range(3)], 36)


@calls_on_threads_of_xla
@each_way
def test_runs_on_other_threads_are_told_apart(way: Any) -> None:
    look = Looking()
    call = way(look)
    program = jitted(lambda x: [call(x + float(i)) for i in range(6)])
    program(LARGE)
    look.seen.clear()

    def work(number: int) -> None:
        VARIABLE.set(f"thread {number}")
        for _ in range(5):
            program(LARGE)

    in_threads(4, work)
    told = sorted(name for _, name in look.seen)
    assert told == sorted(f"thread {i}" for i in range(4) for _ in range(30))


def test_calls_that_nobody_waits_for_see_what_those_who_hand_them_over_see() -> None:
    look = Looking()
    log = hostcall.callback(lambda x: look(x) and None, result=[], wait=False)
    token = VARIABLE.set("handed over")
    jitted(lambda x: (log(x[0]), x)[1])(SMALL)
    VARIABLE.reset(token)
    hostcall.barrier()
    assert [name for _, name in look.seen] == ["handed over"]


def of_tensors(look: Any) -> Callable[..., Any]:
    return lambda x: tf.py_function(look, [x], like(x))


def of_strings(look: Any) -> Callable[..., Any]:
    """A region, or an op on the host."""

    def call(x: tf.Tensor) -> tf.Tensor:
        text = tf.numpy_function(lambda s: look(s), [tf.as_string(x)], tf.string)
        return tf.ensure_shape(tf.strings.to_number(text), x.shape)

    return call


def in_clusters(look: Any) -> Callable[..., Any]:
    """A call in a cluster, the loop; the ops of strings before it are on the host."""
    call = in_turns(look)

    def run(x: tf.Tensor) -> tf.Tensor:
        y = tf.cast(tf.strings.to_number(tf.as_string(x)), tf.float32)
        return tf.while_loop(lambda i, _: i < 1, lambda i, z: (i + 1, call(z)), [0, y])[1]

    return run


@pytest.mark.parametrize("x", [SMALL, LARGE[:1000]], ids=["small", "large"])
# Under a tape a program runs on another thread: on this one the tape would note what its calls do.
@pytest.mark.parametrize("wrap", [eagerly, under_a_tape], ids=["plain", "tape"])
@pytest.mark.parametrize("way", [with_effects, of_tensors, of_strings, in_clusters, concurrently])
def test_on_whatever_thread(way: Any, wrap: Any, x: tf.Tensor) -> None:
    look = Looking()
    call = way(look)
    program = wrap(jitted(lambda x: [call(x + float(i)) for i in range(3)]))
    assert_settings_are_seen(look, lambda: program(x), 3)


@each_way
def test_a_call_that_runs_a_program_is_its_starter(way: Any) -> None:
    look = Looking()
    inner = jitted(lambda x: [way(look)(x), concurrently(look)(x + 1.0)])

    def outer(x: Any) -> Any:
        VARIABLE.set("inner")
        under_a_tape(inner)(tf.constant(x))
        return x

    program = under_a_tape(jitted(lambda x: [way(outer)(x), of_tensors(look)(x)]))
    token = VARIABLE.set("outer")
    program(SMALL)
    VARIABLE.reset(token)
    assert sorted(name for _, name in look.seen) == ["inner", "inner", "outer"]
