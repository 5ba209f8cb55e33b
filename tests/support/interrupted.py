"""Programs that wait for calls of a minute when Ctrl-C comes, each in a process of its own.

The process prints how many seconds it has taken to come back, and whether it works afterwards.
"""

import concurrent.futures
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hostcall

SECONDS = 60.0
PROGRAMS: dict[str, Callable[[Any], Callable[[], Any]]] = {}


class Simulation:
    """Takes a minute while it is said so; tells when it has begun."""

    def __init__(self) -> None:
        self.takes_long = False
        self.begun = threading.Event()

    def __call__(self, *args: Any) -> Any:
        end = time.monotonic() + SECONDS
        while self.takes_long and time.monotonic() < end:
            self.begun.set()
            time.sleep(0.01)
        time.sleep(0.001)  # long enough to be worth a thread
        return np.asarray(args[0])


def program(function: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], Callable[[], Any]]:
    PROGRAMS[function.__name__] = function
    return function


def _tensorflow(call: Callable[..., Any], size: int = 2, count: int = 4) -> Callable[[], Any]:
    import tensorflow as tf

    x = tf.range(size, dtype=tf.float32)
    compiled = tf.function(
        lambda x: [call(x + float(i)) for i in range(count)], jit_compile=True, autograph=False
    )
    return lambda: [value.numpy() for value in compiled(x)]


def _jax(call: Callable[..., Any], size: int = 2, count: int = 4) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    x = jnp.arange(size, dtype=jnp.float32)
    compiled = jax.jit(lambda x: [call(x + i) for i in range(count)])
    return lambda: jax.block_until_ready(compiled(x))


_FRAMEWORKS = {"tf": _tensorflow, "jax": _jax}


def _callback(simulate: Any, **how: Any) -> Any:
    return hostcall.callback(simulate, result=lambda x: x, stateful=False, **how)


def _both(name: str, make: Callable[[Any], Any], **how: Any) -> None:
    for framework, run in _FRAMEWORKS.items():
        PROGRAMS[f"{name} {framework}"] = functools.partial(_made, run, make, how)


def _made(run: Any, make: Callable[[Any], Any], how: dict[str, int], simulate: Any) -> Any:
    return run(make(simulate), **how)


def _pool() -> Any:
    return concurrent.futures.ThreadPoolExecutor(4)


_both("concurrent", lambda s: _callback(s, concurrent=True))
_both("one by one", _callback)
_both("large", _callback, size=100_000, count=12)
_both("large concurrent", lambda s: _callback(s, concurrent=True), size=100_000, count=12)
_both("executor", lambda s: _callback(s, executor=_pool()))
_both("stateful executor", lambda s: hostcall.callback(s, result=lambda x: x, executor=_pool()))
_both("map", lambda s: hostcall.map(_callback(s), executor=_pool(), chunks=2))
_both("timeout", lambda s: _callback(s, timeout=600.0, concurrent=True))


@program
def partitioned_loop(simulate: Simulation) -> Callable[[], Any]:
    import tensorflow as tf

    call = _callback(simulate, concurrent=True)

    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, call(x) + call(x + 1.0)

    def run(x: tf.Tensor) -> tf.Tensor:
        with hostcall.scope(route="partition"):
            return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    return _tensorflow(run, count=1)


@program
def partitioned_call_of_tensors(simulate: Simulation) -> Callable[[], Any]:
    """Beside one that takes no time: alone it would run on the main thread."""
    import tensorflow as tf

    quick = hostcall.callback(lambda x: x, result=lambda x: x, stateful=False, concurrent=True)

    def run(x: tf.Tensor) -> tf.Tensor:
        with hostcall.scope(route="partition"):
            y = tf.py_function(lambda v: simulate(v.numpy()), [x], tf.TensorSpec([2]))
            return y + quick(x)

    return _tensorflow(run, count=1)


@program
def barrier(simulate: Simulation) -> Callable[[], Any]:
    log = hostcall.callback(lambda x: simulate(x) and None, result=[], wait=False)
    run = _tensorflow(lambda x: (log(x[0]), x)[1], count=1)
    return lambda: (run(), hostcall.barrier())


def main(name: str) -> None:
    """Runs a program, sends Ctrl-C, and prints what has become of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in the background
    simulate = Simulation()
    run = PROGRAMS[name](simulate)
    for _ in range(3):
        run()
    simulate.takes_long = True
    simulate.begun.clear()

    def interrupt() -> None:
        simulate.begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

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
    sys.stdout.flush()
    if name != "barrier":
        try:
            run()
        except KeyboardInterrupt:  # of the same Ctrl-C
            run()
        sys.stdout.write("works\n")
    sys.stdout.flush()
    os._exit(0)  # Python would wait for the pools
