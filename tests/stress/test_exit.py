"""A process that ends with calls in flight, or with compiled functions alive: no hitch, no message.

It ends when the test has returned. `template.py` forks for each of these processes, before
TensorFlow has run anything.
"""

import atexit
import gc
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import gradient_of
from tests.support.stress import programs, template
from tests.support.stress.processes import run_alone
from tests.support.stress.programs import check, compiled, double, like, program
from tests.support.stress.template import Template
from tests.support.threads import PATIENCE

in_template = pytest.mark.runs_in("template")

X = np.arange(1.0, 5.0, dtype=np.float32)


class EndsSlowly:
    """Holds the interpreter's end up, so that other threads meet it for certain."""

    def __del__(self, sleep: Any = time.sleep) -> None:
        sleep(0.3)


def keep(*values: Any) -> None:
    """Keeps values until the interpreter clears its modules."""
    sys.kept_until_the_end = values  # type: ignore[attr-defined]


Ready = Callable[[], Any]


def linger(ready: Ready) -> Any:
    """Takes and releases the GIL for as long as Python lets this thread live."""
    ready()
    while True:
        time.sleep(0.001)


def compute(ready: Ready) -> None:
    numbers = itertools.count()
    ready()
    while True:
        next(numbers)


def multiply(ready: Ready) -> None:
    matrix = np.ones([300, 300])
    ready()
    while True:
        matrix @ matrix


def wait_for_a_lock(ready: Ready) -> None:
    lock = threading.Lock()
    with lock:
        ready()
        lock.acquire()


def wait_in_tensorflow(ready: Ready) -> None:
    queue = tf.queue.FIFOQueue(1, tf.float32)

    @tf.function
    def wait() -> tf.Tensor:
        tf.numpy_function(ready, [], [])
        return queue.dequeue()

    wait()


def wait_in_a_compiled_function(ready: Ready) -> None:
    compiled(program(lambda x: linger(ready), "numpy_function", "small"))(X)


# What runs no more than a moment in TensorFlow before it waits, and hands the GIL over in Python:
# a daemon thread that does so within an eager op, or while it traces, ends the process with
# "FATAL: exception not rethrown", with stock TensorFlow as well.
DOINGS = {
    doing.__name__: doing
    for doing in (
        linger,
        compute,
        multiply,
        wait_for_a_lock,
        wait_in_tensorflow,
        wait_in_a_compiled_function,
    )
}

WAYS = [way for name, way in programs.WAYS.items() if name != "plain"]


class Begins:
    """Functions that begin what never ends when each of `count` functions has been called."""

    def __init__(self, do: Callable[[Ready], Any], count: int) -> None:
        self._do = do
        self._count = count
        self._together = threading.Barrier(count)
        self._ready = threading.Semaphore(0)

    def function(self) -> Callable[[Any], None]:
        first = threading.Semaphore(1)

        def begin(x: Any) -> None:
            if first.acquire(blocking=False):
                self._together.wait(PATIENCE)
                self._do(self._ready.release)
            self._do(lambda: None)  # calls without side effects overlap

        return begin

    def wait(self) -> None:
        """Until all of them have begun."""
        for _ in range(self._count):
            assert self._ready.acquire(timeout=PATIENCE)


@in_template
@pytest.mark.parametrize("doing", DOINGS)
def test_calls_in_flight(doing: str) -> None:
    """A call of each kind in small and large programs, each on a thread of its own."""
    cases = list(itertools.product(programs.KINDS, programs.SIZES))
    ways = itertools.cycle(WAYS)
    for _ in range(list(DOINGS).index(doing)):
        next(ways)
    begins = Begins(DOINGS[doing], len(cases))
    for (kind, size), (way, options) in zip(cases, ways, strict=False):
        function = way(program(begins.function(), kind, size, **options))
        threading.Thread(target=function, args=(programs.values(size),), daemon=True).start()
    begins.wait()
    keep(EndsSlowly())


def test_calls_in_flight_in_a_process_that_was_not_forked() -> None:
    run_alone(test_calls_in_flight, "linger")


def fail_with_calls_in_flight(raised: str) -> None:
    test_calls_in_flight("linger")
    raise {"SystemExit": SystemExit(7), "ValueError": ValueError("the end")}[raised]


def test_calls_in_flight_do_not_change_the_exit_status(template: Template) -> None:
    ended = template.run(fail_with_calls_in_flight, "SystemExit")
    assert (ended.status, ended.said) == (7, "")
    ended = template.run(fail_with_calls_in_flight, "ValueError")
    assert ended.status == 1
    assert ended.said.startswith("Traceback")
    assert ended.said.endswith("ValueError: the end\n")


@in_template
def test_late_calls_that_still_run() -> None:
    begun = threading.Semaphore(0)
    for kind, size in itertools.product(programs.KINDS, programs.SIZES):
        overrun = lambda x: linger(begun.release)  # noqa: E731 - each is declared anew
        function = compiled(program(overrun, kind, size, timeout=0.05))
        with pytest.raises(tf.errors.DeadlineExceededError):
            function(programs.values(size))
        assert begun.acquire(timeout=PATIENCE)
    keep(EndsSlowly())


@pytest.mark.runs_in("template", prints="right\n")
def test_a_thread_that_python_waits_for() -> None:
    main = threading.current_thread()
    begun = threading.Event()

    def wait_for_main(x: Any) -> Any:
        begun.set()
        main.join()
        return x * np.float32(2.0)

    def call() -> None:
        for size in programs.SIZES:
            x = programs.values(size)
            check(compiled(program(wait_for_main, "numpy_function", size))(x), x)
        sys.stdout.write("right\n")

    threading.Thread(target=call).start()
    assert begun.wait(PATIENCE)


def in_background(function: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()
    assert entered.wait(PATIENCE)
    keep(EndsSlowly())


entered = threading.Event()


def enter_and_linger(*_: Any) -> Any:
    linger(entered.set)


@in_template
def test_a_call_that_compiles() -> None:
    traced = threading.Event()

    def rule(x: tf.TensorSpec) -> tf.TensorSpec:
        if traced.is_set():
            enter_and_linger()
        return like(x)

    negative = hostcall.callback(np.negative, result=rule)
    concrete = compiled(lambda x: negative(x)).get_concrete_function(like(X))
    traced.set()
    in_background(concrete, tf.constant(X))


@in_template
def test_a_call_that_drops_what_a_gradient_kept() -> None:
    def square(x: tf.Tensor) -> tf.Tensor:
        weakref.finalize(x, enter_and_linger).atexit = False
        return x * x

    function = compiled(lambda x: gradient_of(lambda x: programs.py_function(square, x), x))
    in_background(function, tf.constant(X))


@in_template
def test_a_call_that_differentiates() -> None:
    @tf.custom_gradient
    def square(x: tf.Tensor) -> Any:
        return x * x, enter_and_linger

    function = compiled(lambda x: gradient_of(lambda x: programs.py_function(square, x), x))
    in_background(function, tf.constant(X))


@in_template
def test_a_call_that_waits_in_a_plain_function() -> None:
    inner = programs.plain(program(enter_and_linger, "py_function", "small"))
    in_background(
        compiled(program(lambda x: inner(x), "callback", "large")), programs.values("large")
    )


def every_program() -> list[Any]:
    functions = []
    for kind, (way, options) in zip(programs.KINDS, WAYS, strict=True):
        for size in programs.SIZES:
            functions.append(way(program(lambda x: double(x), kind, size, **options)))
            check(functions[-1](programs.values(size)), programs.values(size))
    return functions


@in_template
def test_functions_in_globals_and_cycles_are_alive() -> None:
    class Cycle:
        pass

    cycle = Cycle()
    cycle.itself = cycle  # type: ignore[attr-defined]
    cycle.functions = every_program()  # type: ignore[attr-defined]
    globals()["functions"] = every_program()
    globals()["named"] = hostcall.callback(double, result=like, name="named")
    keep(cycle)
    gc.disable()


class Doubled(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        outputs = programs.py_function(double, inputs)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


@in_template
def test_a_keras_model_is_alive() -> None:
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4), Doubled()])
    model.compile("adam", "mse", jit_compile=True)
    x = np.random.default_rng(0).random([8, 4], np.float32)
    model.fit(x, x, batch_size=4, verbose=0)
    model.predict(x, verbose=0)
    globals()["model"] = model
    model.itself = [model]


@in_template
def test_states_of_gradients_are_alive() -> None:
    tapes = []
    for way in (compiled, programs.plain, lambda run: run):
        for size in programs.SIZES:
            x = programs.values(size)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = way(program(double, "py_function", size))(x)
            np.testing.assert_array_equal(tape.gradient(y[0], x), tf.fill(x.shape, 2.0))
            tapes.append((tape, y))
    globals()["tapes"] = tapes
    keep(*tapes)


@pytest.mark.runs_in("template", prints=4 * "right\n")
def test_handlers_at_exit() -> None:
    """Handlers that call what has run already, and what has not."""
    functions = [
        (compiled(program(double, kind, size)), programs.values(size))
        for kind, size in itertools.product(programs.KINDS, programs.SIZES)
    ]

    def call() -> None:
        for function, x in functions:
            check(function(x), x)
        x = programs.values("small")
        np.testing.assert_array_equal(
            gradient_of(compiled(program(double, "py_function", "small")), x), tf.fill([4], 2.0)
        )
        sys.stdout.write("right\n")

    template.last_handlers.append(call)
    atexit.register(call)
    call()
    atexit.register(call)
