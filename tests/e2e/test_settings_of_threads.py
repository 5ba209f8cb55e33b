"""A call sees the settings of who started its program, on whatever thread it runs."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import jitted

SMALL, LARGE = tf.constant([1.0, 2.0]), tf.range(100_000, dtype=tf.float32)
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="nothing")


class Looking:
    """A function that notes what it sees and where it runs."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.threads: set[int] = set()

    def __call__(self, x: Any) -> Any:
        self.seen.append((np.geterr()["divide"], VARIABLE.get()))
        self.threads.add(threading.get_ident())
        return x


def like(x: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


def concurrently(look: Any) -> Callable[..., Any]:
    return hostcall.callback(look, result=like, stateful=False, concurrent=True)


def in_turns(look: Any) -> Callable[..., Any]:
    return hostcall.callback(look, result=like, stateful=False)


def with_effects(look: Any) -> Callable[..., Any]:
    return hostcall.callback(look, result=like)


def on_an_executor(look: Any) -> Callable[..., Any]:
    pool = concurrent.futures.ThreadPoolExecutor(2)
    return hostcall.callback(look, result=like, executor=pool)


def within_a_time(look: Any) -> Callable[..., Any]:
    return hostcall.callback(look, result=like, timeout=60.0)


@pytest.mark.custom_call("TensorFlow's kernels run on threads of its own, as without hostcall")
@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "way", [concurrently, in_turns, with_effects, on_an_executor, within_a_time]
)
def test_calls_see_what_the_starter_sees(way: Any, x: tf.Tensor) -> None:
    look = Looking()
    call = way(look)
    program = jitted(lambda x: [call(x + float(i)) for i in range(12)])
    for value in ("one", "two"):
        look.seen.clear()
        token = VARIABLE.set(value)
        with np.errstate(divide="ignore"):
            for _ in range(3):
                program(x)
        VARIABLE.reset(token)
        assert look.seen == [("ignore", value)] * 36


@pytest.mark.parametrize("way", [concurrently, in_turns])
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

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
