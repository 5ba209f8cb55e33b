"""`hostcall.record` and `hostcall.replay`: programs run again without their functions."""

import concurrent.futures
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.recordings import ROUTES, Machine, X, program_of, recorded
from tests.support.versions import on_the_callers_thread

machines: list[Any] = []


def measure_by(x: Any) -> Any:
    return x * np.float32(machines[0].use())


@pytest.mark.parametrize("route", ROUTES)
def test_calls_are_answered_from_the_file(route: str, file: str, machine: Machine) -> None:
    def measure(x: Any, y: Any) -> Any:
        number = machine.use()
        return x * np.float32(number), np.array([number, y], np.int64)

    def body(x: Any) -> Any:
        types = [tf.TensorSpec([3], tf.float32), tf.TensorSpec([2], tf.int64)]
        a, b = tf.numpy_function(measure, [x, tf.constant(7)], types)
        return tf.numpy_function(measure, [a + x, tf.reduce_sum(b)], types)

    program = program_of(body, route)
    program(X)  # traced and compiled before
    recorded(file, machine, lambda: [program(X + i) for i in range(3)])
    assert machine.count == 2 + 6


@pytest.mark.parametrize("route", ROUTES)
def test_gradients_are_answered_from_the_file(route: str, file: str, machine: Machine) -> None:
    def act(x: Any, y: Any) -> Any:
        machine.use()
        return tf.sin(x) * tf.cast(y, tf.float32) * x

    def body(x: Any) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                one = tf.py_function(act, [x, 3], tf.TensorSpec([3], tf.float32))
                two = tf.py_function(act, [one, 5], tf.TensorSpec([3], tf.float32))
            first = inner.gradient(two, x)
        # A plain graph keeps for one gradient what a call was.
        return two, first, [] if route == "plain" else outer.gradient(first, x)

    program = program_of(body, route)
    recorded(file, machine, lambda: [program(X), program(X + 1)])


def test_a_recording_is_replayed_by_another_route(file: str, machine: Machine) -> None:
    def act(x: Any) -> Any:
        return tf.sin(x) * machine.use()

    def body(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(act, [x], tf.TensorSpec([3], tf.float32))
        return y, tape.gradient(y, x)

    with hostcall.record(file):
        expected = [value.numpy() for value in program_of(body, "compiled")(X)]
    machine.is_there = False
    for route in ROUTES:
        program = program_of(body, route)
        with hostcall.replay(file):
            np.testing.assert_array_equal(expected, [value.numpy() for value in program(X)])


def test_loops_that_train_are_replayed(file: str, machine: Machine) -> None:
    def act(x: Any) -> Any:
        return tf.tanh(x) * machine.use()

    variable = tf.Variable([0.5, -0.25])

    @tf.function(jit_compile=True)
    def train() -> Any:
        variable.assign([0.5, -0.25])
        for _ in tf.range(4):
            with tf.GradientTape() as tape:
                y = tf.py_function(act, [variable], tf.TensorSpec([2], tf.float32))
                loss = tf.reduce_sum(y * y)
            variable.assign_sub(0.1 * tape.gradient(loss, variable))
        return loss, variable.read_value()

    recorded(file, machine, train)
    assert machine.count == 4


def test_overlapping_calls_are_told_apart_by_their_arguments(file: str, machine: Machine) -> None:
    def slow(x: Any) -> Any:
        machine.use()
        return x * 2

    callback = hostcall.callback(slow, result=lambda x: x, stateful=False, concurrent=True)

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return tf.add_n([callback(x + i) for i in range(1, 9)])

    expected = recorded(file, machine, lambda: program(X))
    machine.is_there = False
    with hostcall.replay(file):
        callback(X + 3)  # in any order
        for i in (1, 2, 8, 7, 6, 5, 4):
            callback(X + i)
    assert expected


def test_functions_of_one_name_are_not_mixed_up(file: str) -> None:
    def scaled(by: float) -> Callable[..., Any]:
        return lambda x: x * np.float32(by)

    def body(x: Any) -> Any:
        spec = tf.TensorSpec([3], tf.float32)
        parts = [
            tf.numpy_function(scaled(by), [x], spec, stateful=False) for by in (1.0, 10.0, 100.0)
        ]
        return tf.stack(parts)

    with hostcall.record(file):
        expected = tf.function(body, jit_compile=True)(X).numpy()
    with hostcall.replay(file):
        np.testing.assert_array_equal(tf.function(body, jit_compile=True)(X), expected)


@on_the_callers_thread
def test_what_a_function_calls_in_turn_is_part_of_it(file: str, machine: Machine) -> None:
    inner = hostcall.callback(lambda x: x + machine.use(), result=lambda x: x, name="inner")
    nested = tf.function(lambda x: inner(x) * 2, jit_compile=True)
    outer = hostcall.callback(lambda x: nested(x).numpy(), result=lambda x: x, name="outer")
    program = tf.function(lambda x: outer(x) + 1, jit_compile=True)
    recorded(file, machine, lambda: program(X))
    assert machine.count == 1


def test_functions_that_are_remembered_are_recorded_each_time(file: str, machine: Machine) -> None:
    callback = hostcall.callback(
        lambda x: x + machine.use(), result=lambda x: x, stateful=False, memo=True
    )
    program = tf.function(lambda x: callback(x) + callback(tf.ones([3])), jit_compile=True)
    recorded(file, machine, lambda: [program(X), program(X)])


def test_stateless_calls_of_datasets_come_in_any_order(file: str, machine: Machine) -> None:
    def measure(x: Any) -> Any:
        return x + machine.use()

    dataset = tf.data.Dataset.range(32).map(
        lambda i: tf.numpy_function(measure, [i], tf.int64, stateful=False), num_parallel_calls=4
    )
    recorded(file, machine, lambda: list(dataset))


def test_programs_of_other_processes(file: str, machine: Machine, tmp_path: pathlib.Path) -> None:
    """Saved models, exported programs and bound functions call the functions of these names."""

    class Model(tf.Module):
        @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([3], tf.float32)])
        def __call__(self, x: Any) -> Any:
            y = tf.numpy_function(measure_by, [x], tf.TensorSpec([3], tf.float32))
            return tf.numpy_function(measure_by, [y], tf.TensorSpec([3], tf.float32))

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "saved"))
    hostcall.export(model.__call__, X).save(tmp_path / "program")
    machines.append(machine)
    with hostcall.record(file):
        expected = model(X).numpy()
    machines.clear()
    bound = hostcall.bind(model.__call__, X)
    loaded = hostcall.load(tmp_path / "program")
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    for program in bound, loaded, saved:
        with hostcall.replay(file):
            np.testing.assert_array_equal(program(X), expected)


def test_sessions(file: str, machine: Machine) -> None:
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(tf.float32, [3])
        result = tf.numpy_function(lambda x: x * np.float32(machine.use()), [given], tf.float32)
        with tf.compat.v1.Session() as session:
            with hostcall.record(file):
                expected = session.run(result, {given: X.numpy()})
            machine.is_there = False
            with hostcall.replay(file):
                again = session.run(result, {given: X.numpy()})
    np.testing.assert_array_equal(again, expected)


def test_functions_that_are_chosen(file: str, machine: Machine) -> None:
    def measure(x: Any) -> Any:
        return x * np.float32(machine.use())

    seen: list[float] = []
    chosen = hostcall.callback(measure, result=lambda x: x, name="chosen one")
    note = hostcall.callback(lambda x: seen.append(float(x[0])), result=[])

    def again(x: Any) -> Any:  # which is called in the replay, too, and so calls what is not
        return tf.function(lambda x: chosen(x), jit_compile=True)(x).numpy()

    def body(x: Any) -> Any:
        note(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(lambda v: v * machine.use(), [x], tf.TensorSpec([3], x.dtype))
        spec = tf.TensorSpec([3], tf.float32)
        return chosen(x), tf.numpy_function(again, [x], spec), y, tape.gradient(y, x)

    program = tf.function(body, jit_compile=True)
    with hostcall.record(file, only=[chosen, "body.<locals>.<lambda>"]):
        expected = [value.numpy() for value in program(X)]
    machine.is_there = False
    with hostcall.replay(file):
        np.testing.assert_array_equal([value.numpy() for value in program(X)], expected)
    assert seen == [1.0, 1.0]


@pytest.mark.parametrize(
    ("only", "error", "said"),
    [([], ValueError, "leaves no function"), ([7], TypeError, "and 7 is neither")],
)
def test_choices_that_are_none(only: Any, error: type[Exception], said: str, file: str) -> None:
    with pytest.raises(error, match=said), hostcall.record(file, only=only):
        pass
    assert not pathlib.Path(file).exists()


def test_a_choice_without_calls_is_told_of(file: str) -> None:
    warned = pytest.warns(RuntimeWarning, match="no call of measure_bye")
    with warned, hostcall.record(file, only="measure_bye"):
        tf.numpy_function(lambda x: x, [X], X.dtype)


def test_functions_run_again_after_the_end(file: str, machine: Machine) -> None:
    program = program_of(
        lambda x: tf.numpy_function(lambda v: v * machine.use(), [x], X.dtype), "plain"
    )
    compiled = program_of(
        lambda x: tf.numpy_function(
            lambda v: v * np.float32(machine.use()), [x], tf.TensorSpec([3], X.dtype)
        ),
        "compiled",
    )
    with hostcall.record(file):
        compiled(X)
    with hostcall.replay(file):
        compiled(X)
    assert machine.count == 1
    compiled(X), program(X)
    assert machine.count == 3


def test_callbacks_that_are_made_in_a_recording(file: str, machine: Machine) -> None:
    def run() -> Any:
        callback = hostcall.callback(
            lambda x: x * np.float32(machine.use()), result=lambda x: x, name="made within"
        )
        return tf.function(lambda x: callback(x), jit_compile=True)(X)

    recorded(file, machine, run)


def test_threads_record_at_once(file: str) -> None:
    callback = hostcall.callback(lambda x: x * 2, result=lambda x: x, stateful=False, name="twice")
    program = tf.function(lambda x: callback(x), jit_compile=True)
    program(X)

    def run() -> list[bytes]:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return [y.numpy().tobytes() for y in pool.map(lambda i: program(X + i), range(64))]

    with hostcall.record(file):
        expected = run()
    with hostcall.replay(file):
        assert run() == expected
