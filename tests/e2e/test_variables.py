"""Compiled programs take variables when they start and assign them at their end; nothing hangs."""

import faulthandler
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import gradient_of, jitted, outcome, plain

SCALAR = tf.TensorSpec([], tf.float32)
HANG = 300  # seconds


@pytest.fixture(autouse=True)
def _end_the_process_when_it_hangs(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    with capfd.disabled():
        stderr = os.fdopen(os.dup(2), "w")
    with stderr:
        faulthandler.dump_traceback_later(HANG, exit=True, file=stderr)
        yield
        faulthandler.cancel_dump_traceback_later()


# The uses of v by the program and by the callback, and the outcome: the results of two calls (of
# the callback, if it reads), and v at the end.
CASES = {
    ("nothing", "read"): ([1.0, 1.0], 1.0),
    ("read", "read"): ([1.0, 1.0], 1.0),
    ("assign", "read"): ([1.0, 11.0], 21.0),
    ("nothing", "assign"): ([0.0, 0.0], 100.0),
    ("read", "assign"): ([1.0, 100.0], 100.0),
    ("assign", "assign"): (tf.errors.FailedPreconditionError, 100.0),
}


on_copies = pytest.mark.custom_call(
    "partitioned functions use their variables as plain graph mode does"
)


# Where one of them assigns a variable that the other uses, plain graph mode does not order them.
PARAMETERS = [
    pytest.param(*case, marks=() if "nothing" in case or set(case) == {"read"} else on_copies)
    for case in CASES
]


@pytest.mark.parametrize(("program", "callback"), PARAMETERS)
def test_a_callback_and_its_program_share_a_variable(program: str, callback: str) -> None:
    v = tf.Variable(1.0)

    def assign() -> None:
        v.assign(100.0)

    def run() -> tf.Tensor:
        if program == "assign":
            v.assign_add(10.0)
        if callback == "read":
            return tf.py_function(lambda: v.read_value(), [], SCALAR)
        tf.py_function(assign, [], [])
        return tf.constant(0.0) if program == "nothing" else v.read_value()

    compiled = jitted(run)
    results = outcome(lambda: [compiled(), compiled()])
    assert (results, v.numpy()) == CASES[program, callback]


@on_copies
def test_where_both_assign_the_error_names_the_variable_and_later_calls_are_sound() -> None:
    v, w = tf.Variable(1.0, name="weight"), tf.Variable(1.0)
    assigns = [True]

    def assign() -> None:
        if assigns:
            v.assign(100.0)

    @jitted
    def run() -> tf.Tensor:
        tf.py_function(assign, [], [])
        w.assign_add(1.0)
        return v.assign_add(1.0)

    with pytest.raises(tf.errors.FailedPreconditionError, match=r"'weight.*test_variables\.py:"):
        run()
    assert w.numpy() == 1.0  # all or none
    assigns.clear()
    assert [run().numpy(), w.numpy()] == [101.0, 2.0]


@on_copies
def test_a_failed_program_assigns_nothing() -> None:
    v, fail = tf.Variable([1.0, 2.0]), [True]

    def check(x: np.ndarray) -> None:
        if fail:
            raise ValueError("no")

    @jitted
    def run() -> tf.Tensor:
        new = v.assign_add([10.0, 10.0])
        tf.numpy_function(check, [new], [])
        return new

    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: no"):
            run()
        assert v.numpy().tolist() == [1.0, 2.0]
    fail.clear()
    assert [run().numpy().tolist(), v.numpy().tolist()] == [[11.0, 12.0]] * 2


@on_copies
def test_sparse_updates_in_a_callback_do_not_reach_the_program_that_runs() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    v.scatter_update(tf.IndexedSlices([5.0], [0]))  # from now on such updates are made in place

    def update(x: Any) -> tf.Tensor:
        v.scatter_add(tf.IndexedSlices([10.0], [1]))
        return x

    run = jitted(lambda x: tf.py_function(update, [x], SCALAR) + tf.reduce_sum(v))
    assert [run(tf.constant(0.0)).numpy() for _ in range(3)] == [10.0, 20.0, 30.0]
    assert v.numpy().tolist() == [5.0, 32.0, 3.0]


def test_threads_whose_callbacks_read_a_variable_and_call_functions() -> None:
    v = tf.Variable(2.0)
    double = plain(lambda x: x * v)
    call = jitted(lambda x: tf.py_function(double, [x + 0.0 * v], SCALAR))
    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda i: call(tf.constant(float(i))).numpy(), range(200)))
    assert results == [2.0 * i for i in range(200)]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_the_copies_die_with_the_call() -> None:
    v = tf.Variable(tf.zeros([1 << 18]))  # 1 MiB

    @jitted
    def run() -> tf.Tensor:
        tf.py_function(lambda: v.read_value()[0], [], SCALAR)
        return v.assign_add(tf.ones([1 << 18]))[0]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(20):
        run()
    before = resident()
    for _ in range(300):
        run()
    assert resident() - before < 100 << 20  # a leak of one copy a call is 300 MiB
    assert v.numpy()[0] == 320.0


# Compiled functions that create variables whose initial values depend on their arguments.

Make = Callable[[Any], Callable[[tf.Tensor], tf.Tensor]]
VALUES = (1.0, 3.0, 4.0)
calls: list[float] = []


def counted(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(lambda v: (calls.append(float(v)), v + 1)[1], [x], tf.float32)
    return tf.ensure_shape(y, [])


def created(make: Callable[..., list[tf.Variable]]) -> Callable[..., list[tf.Variable]]:
    """Return a function that makes variables when it is first called, and returns them."""
    variables: list[tf.Variable] = []

    def create(*args: Any) -> list[tf.Variable]:
        if not variables:
            variables.extend(make(*args))
        return variables

    return create


def initial_value(decorate: Any) -> Any:
    variables = created(lambda x: [tf.Variable(2.0 * x)])
    return decorate(lambda x: variables(x)[0] * x)


def several(decorate: Any) -> Any:
    """One of them depends on no argument; both are assigned."""
    variables = created(lambda x: [tf.Variable(2.0 * x), tf.Variable(1.0)])

    @decorate
    def program(x: tf.Tensor) -> tf.Tensor:
        first, second = variables(x)
        first.assign_add(x)
        second.assign(first + x)
        return first * x + second

    return program


def other_arguments(decorate: Any) -> Any:
    variables = created(lambda initial: [tf.Variable(initial)])

    @decorate
    def program(x: tf.Tensor, training: bool = False, scale: float = 3.0) -> tf.Tensor:
        (variable,) = variables(scale * x)
        return variable * x * scale if training else x

    return lambda x: program(x, training=True)


def callbacks(decorate: Any) -> Any:
    variables = created(lambda y: [tf.Variable(2.0 * y)])

    @decorate
    def program(x: tf.Tensor) -> tf.Tensor:
        (variable,) = variables(counted(x))
        return variable * x + counted(variable.read_value())

    return program


def module(decorate: Any) -> Any:
    class Scaled(tf.Module):
        weight: tf.Variable | None = None

        @decorate
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            if self.weight is None:
                self.weight = tf.Variable(tf.ones([2]) * x)
            return tf.reduce_sum(x * self.weight)

    return Scaled()


def gradient(decorate: Any) -> Any:
    return functools.partial(gradient_of, initial_value(decorate))


def nested(decorate: Any) -> Any:
    return tf.function(initial_value(decorate), autograph=False)


def nested_in_a_compiled_one(decorate: Any) -> Any:
    return decorate(initial_value(decorate))


PROGRAMS: list[Make] = [
    *(initial_value, several, other_arguments, callbacks, module),
    *(gradient, nested, nested_in_a_compiled_one),
]


def decorator(jit_compile: bool | None) -> Any:
    return lambda f: tf.function(f, jit_compile=jit_compile, autograph=False)


def outcome_of(make: Make, jit_compile: bool | None) -> tuple[list[float], list[float]]:
    calls.clear()
    program = make(decorator(jit_compile))
    return [float(program(tf.constant(value))) for value in VALUES], [*calls]


@pytest.mark.parametrize("make", PROGRAMS)
def test_such_variables_are_those_of_the_uncompiled_function(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    assert outcome_of(make, jit_compile=True) == outcome_of(make, jit_compile=None)
    if make in (initial_value, callbacks):  # nothing is logged of the first call
        assert not [record for record in caplog.records if record.name == "hostcall"]


@pytest.mark.usefixtures("auto_route")
def test_later_calls_are_compiled_as_a_whole() -> None:
    program = initial_value(decorator(True))
    program(tf.constant(1.0))
    (cluster,) = hostcall.explain(program, tf.TensorSpec([], tf.float32)).clusters
    assert cluster.name == cluster.function


@pytest.mark.usefixtures("stock_errors")
def test_the_error_stays_where_nothing_may_be_on_the_host() -> None:
    with pytest.raises(tf.errors.UnimplementedError, match="failed to lift variable"):
        outcome_of(initial_value, jit_compile=True)
