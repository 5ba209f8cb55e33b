"""Ctrl-C ends a program at once, wherever its calls run."""

import concurrent.futures
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hostcall
from tests.support.stress.template import Template

SECONDS = 60.0


class Simulation:
    """Takes a minute while it is said so; tells when it has begun."""

    def __init__(self) -> None:
        self.takes_long = False
        self.begun = threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.begun.set()
        end = time.monotonic() + SECONDS
        while self.takes_long and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.001)  # long enough to be worth a thread
        return np.asarray(args[0])


def in_tensorflow(call: Callable[..., Any], size: int = 2, count: int = 4) -> Callable[[], Any]:
    import tensorflow as tf

    x = tf.range(size, dtype=tf.float32)
    compiled = tf.function(
        lambda x: [call(x + float(i)) for i in range(count)], jit_compile=True, autograph=False
    )
    return lambda: [value.numpy() for value in compiled(x)]


def in_jax(call: Callable[..., Any], size: int = 2, count: int = 4) -> Callable[[], Any]:
    import jax

    x = jax.numpy.arange(size, dtype=np.float32)
    compiled = jax.jit(lambda x: [call(x + i) for i in range(count)])
    return lambda: jax.block_until_ready(compiled(x))


def pure(simulate: Any, **how: Any) -> Any:
    return hostcall.callback(simulate, result=lambda x: x, stateful=False, **how)


def pool() -> Any:
    return concurrent.futures.ThreadPoolExecutor(4)


LARGE = {"size": 100_000, "count": 12}
# By name: the callback of a simulation, and how large the program is.
CALLS: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "concurrent": (lambda s: pure(s, concurrent=True), {}),
    "one by one": (pure, {}),
    "large": (pure, LARGE),
    "large concurrent": (lambda s: pure(s, concurrent=True), LARGE),
    "executor": (lambda s: pure(s, executor=pool()), {}),
    "stateful executor": (lambda s: hostcall.callback(s, result=lambda x: x, executor=pool()), {}),
    "map": (lambda s: hostcall.map(pure(s), executor=pool(), chunks=2), {}),
    "timeout": (lambda s: pure(s, timeout=600.0, concurrent=True), {}),
}


def partitioned_loop(simulate: Simulation) -> Callable[[], Any]:
    import tensorflow as tf

    call = pure(simulate, concurrent=True)

    def run(x: Any) -> Any:
        with hostcall.scope(route="partition"):
            body = lambda i, x: (i + 1, call(x) + call(x + 1.0))  # noqa: E731
            return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    return in_tensorflow(run, count=1)


def partitioned_call_of_tensors(simulate: Simulation) -> Callable[[], Any]:
    """Beside one that takes no time: alone it would run on the main thread."""
    import tensorflow as tf

    quick = pure(lambda x: x, concurrent=True)

    def run(x: Any) -> Any:
        with hostcall.scope(route="partition"):
            y = tf.py_function(lambda v: simulate(v.numpy()), [x], tf.TensorSpec([2]))
            return y + quick(x)

    return in_tensorflow(run, count=1)


def barrier(simulate: Simulation) -> Callable[[], Any]:
    log = hostcall.callback(lambda x: simulate(x) and None, result=[], wait=False)
    run = in_tensorflow(lambda x: (log(x[0]), x)[1], count=1)
    return lambda: (run(), simulate.begun.wait(), hostcall.barrier())


FRAMEWORKS = {"tf": in_tensorflow, "jax": in_jax}
OTHERS = {made.__name__: made for made in (partitioned_loop, partitioned_call_of_tensors, barrier)}


def made(name: str, simulate: Simulation) -> Callable[[], Any]:
    if name in OTHERS:
        return OTHERS[name](simulate)
    call, _, framework = name.rpartition(" ")
    make, how = CALLS[call]
    return FRAMEWORKS[framework](make(simulate), **how)


def waits(thread: int) -> bool:
    before = sys._current_frames()[thread].f_back
    return before is not None and before.f_code is threading.Condition.wait_for.__code__


def interrupt_and_go_on(name: str) -> None:
    """Runs a program, sends Ctrl-C, and prints how it ended and whether it works afterwards."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in the background
    simulate = Simulation()
    main = threading.get_ident()
    run = made(name, simulate)
    for _ in range(3):
        run()
    simulate.takes_long = True
    simulate.begun.clear()

    def interrupt() -> None:
        simulate.begun.wait()
        while name == "barrier" and not waits(main):
            time.sleep(0.001)
        # Not on the main thread, which may as well be about to wait: nothing wakes it then.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    try:
        run()
        ended = "it has ended"
    except BaseException as error:
        ended = "interrupted" if "KeyboardInterrupt" in repr(error) else repr(error)
    took = time.monotonic() - began
    simulate.takes_long = False
    sys.stdout.write(f"{ended}, {'at once' if took < SECONDS / 2 else took}\n")
    try:
        run()
    except KeyboardInterrupt:  # of the same Ctrl-C
        run()
    sys.stdout.write("works\n")
    sys.stdout.flush()
    os._exit(0)  # Python would wait for the pools


NAMES = [f"{call} {framework}" for call in CALLS for framework in FRAMEWORKS]


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_ctrl_c_ends_a_program_at_once(template: Template, name: str) -> None:
    ended = template.run(interrupt_and_go_on, name, limit=300.0)
    assert ended.printed.splitlines() == ["interrupted, at once", "works"], ended.said[-2000:]
