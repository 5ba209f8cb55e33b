"""`hostcall.record` and `hostcall.replay`: programs run again without their functions."""

import concurrent.futures
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_equal, assert_says, failure, like, value_and_gradient
from tests.support.recordings import ROUTES, Machine, X, program_of, recorded, refusal
from tests.support.versions import on_the_callers_thread

SPEC = tf.TensorSpec([3], tf.float32)
machines: list[Any] = []


def measure_by(x: Any) -> Any:
    return machines[0].multiply(x)


@pytest.mark.parametrize("route", ROUTES)
def test_calls_are_answered_from_the_file(route: str, file: str, machine: Machine) -> None:
    def measure(x: Any, y: Any) -> Any:
        number = machine.use()
        return x * np.float32(number), np.array([number, y], np.int64)

    def body(x: Any) -> Any:
        types = [SPEC, tf.TensorSpec([2], tf.int64)]
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
                one = tf.py_function(act, [x, 3], SPEC)
                two = tf.py_function(act, [one, 5], SPEC)
            first = inner.gradient(two, x)
        # A plain graph keeps for one gradient what a call was.
        return two, first, [] if route == "plain" else outer.gradient(first, x)

    program = program_of(body, route)
    recorded(file, machine, lambda: [program(X), program(X + 1)])


def test_a_recording_is_replayed_by_another_route(file: str, machine: Machine) -> None:
    def act(x: Any) -> Any:
        return tf.py_function(lambda x: tf.sin(x) * machine.use(), [x], SPEC)

    def run(route: str) -> Any:
        return program_of(lambda x: value_and_gradient(act, x), route)(X)

    with hostcall.record(file):
        expected = run("compiled")
    machine.is_there = False
    for route in ROUTES:
        with hostcall.replay(file):
            assert_equal(run(route), expected)


def of_one_name(machine: Machine) -> Any:
    """Three functions, whose calls come in any order."""

    def scaled(by: float) -> Callable[..., Any]:
        return lambda x: x * np.float32(by * machine.use())

    def body(x: Any) -> Any:
        return tf.stack(
            [tf.numpy_function(scaled(by), [x], SPEC, stateful=False) for by in (1.0, 10.0, 100.0)]
        )

    return tf.function(body, jit_compile=True)(X)


def nested(machine: Machine) -> Any:
    inner = hostcall.callback(machine.multiply, result=like)
    calling = tf.function(lambda x: inner(x) * 2, jit_compile=True)
    outer = hostcall.callback(lambda x: calling(x).numpy(), result=like)
    return tf.function(lambda x: outer(x) + 1, jit_compile=True)(X)


def remembered(machine: Machine) -> Any:
    callback = hostcall.callback(machine.multiply, result=like, stateful=False, memo=True)
    program = tf.function(lambda x: callback(x) + callback(tf.ones([3])), jit_compile=True)
    return [program(X), program(X)]


def in_a_session(machine: Machine) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.compat.v1.placeholder(tf.float32, [3])
        result = tf.numpy_function(machine.multiply, [given], tf.float32)
        return session.run(result, {given: X.numpy()})


def in_a_dataset(machine: Machine) -> Any:
    """Stateless calls, which come in any order."""

    def measure(i: Any) -> Any:
        return tf.numpy_function(lambda x: x + machine.use(), [i], tf.int64, stateful=False)

    return list(tf.data.Dataset.range(32).map(measure, num_parallel_calls=4))


def on_threads(machine: Machine) -> Any:
    callback = hostcall.callback(machine.multiply, result=like, stateful=False)
    program = tf.function(lambda x: callback(x), jit_compile=True)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda i: program(X + i), range(64)))


def of_unknown_size(machine: Machine) -> Any:
    def unique(x: Any) -> Any:
        return np.unique(x * np.float32(machine.use()))

    hostcall.declare(unique, result=hostcall.BoundedSpec([8], tf.float32))
    program = tf.function(
        lambda x: tf.reduce_sum(tf.numpy_function(unique, [x], tf.float32)) + 1, jit_compile=True
    )
    return [program(tf.ones([8])), program(tf.range(8.0))]


def of_strings_and_structures(machine: Machine) -> Any:
    text, total = tf.TensorSpec([3], tf.string), tf.TensorSpec([], tf.float32)

    def name(x: Any, labels: Any) -> Any:
        said = np.array([b"a\0b", b"", "ü".encode()], object)
        return {"text": said, "sum": x["a"] + np.float32(machine.use())}

    callback = hostcall.callback(name, result={"text": text, "sum": total})

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        tf.numpy_function(lambda x: machine.use() and None, [x], [])
        named = callback({"a": x}, tf.constant(["one", "two"]))
        return tf.strings.length(named["text"]), named["sum"]

    return program(2.0)


def on_an_executor(machine: Machine) -> Any:
    """It is not asked in a replay, and neither is the time."""
    pool = concurrent.futures.ThreadPoolExecutor(2)
    if not machine.is_there:
        pool.shutdown()
    callback = hostcall.callback(machine.multiply, result=like, executor=pool, timeout=60)
    return tf.function(lambda x: callback(x), jit_compile=True)(X)


CALLS = [
    *(of_one_name, pytest.param(nested, marks=on_the_callers_thread), remembered, in_a_session),
    *(in_a_dataset, on_threads, of_unknown_size, of_strings_and_structures, on_an_executor),
]


@pytest.mark.parametrize("calls", CALLS)
def test_calls_of_all_kinds(calls: Any, file: str, machine: Machine) -> None:
    recorded(file, machine, lambda: calls(machine))


def test_programs_of_other_processes(file: str, machine: Machine, tmp_path: pathlib.Path) -> None:
    """Saved models, exported programs and bound functions call the functions of these names."""

    @tf.function(jit_compile=True, input_signature=[SPEC])
    def twice(x: Any) -> Any:
        y = tf.numpy_function(measure_by, [x], SPEC)
        return tf.numpy_function(measure_by, [y], SPEC)

    model = tf.Module()
    model.call = twice
    tf.saved_model.save(model, str(tmp_path / "saved"))
    hostcall.export(twice, X).save(tmp_path / "program")
    machines.append(machine)
    with hostcall.record(file):
        expected = twice(X).numpy()
    machines.clear()
    hostcall.allow(__name__)
    loaded = hostcall.load(tmp_path / "program")
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    for program in hostcall.bind(twice, X), loaded, saved.call:
        with hostcall.replay(file):
            np.testing.assert_array_equal(program(X), expected)


def test_functions_that_are_chosen(file: str, machine: Machine) -> None:
    seen: list[float] = []
    chosen = hostcall.callback(machine.multiply, result=like, name="chosen one")
    note = hostcall.callback(lambda x: seen.append(float(x[0])), result=[])

    def again(x: Any) -> Any:  # which is called in the replay, too, and so calls what is not
        return tf.function(lambda x: chosen(x), jit_compile=True)(x).numpy()

    def multiply(v: Any) -> Any:
        return v * machine.use()

    def body(x: Any) -> Any:
        note(x)
        multiplied = lambda x: tf.py_function(multiply, [x], SPEC)  # noqa: E731
        return chosen(x), tf.numpy_function(again, [x], SPEC), value_and_gradient(multiplied, x)

    program = tf.function(body, jit_compile=True)
    with hostcall.record(file, only=[chosen, "<locals>.multiply"]):
        expected = program(X)
    machine.is_there = False
    with hostcall.replay(file):
        assert_equal(program(X), expected)
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
    def body(x: Any) -> Any:
        return tf.numpy_function(machine.multiply, [x], SPEC)

    program, compiled = program_of(body, "plain"), program_of(body, "compiled")
    with hostcall.record(file):
        compiled(X)
    with hostcall.replay(file):
        compiled(X)
    assert machine.count == 1
    compiled(X), program(X)
    assert machine.count == 3


# What a recording holds: values of all kinds, and exceptions.


def multiplied(machine: Machine) -> Any:
    spec = tf.TensorSpec([], tf.bfloat16)
    return lambda x: tf.py_function(lambda x: x * machine.use(), [x], spec)


def written(machine: Machine) -> Any:
    def multiply(x: Any, out: Any) -> None:
        np.multiply(x, machine.use(), out=out)

    return hostcall.callback(multiply, result=like, borrow=True, out=True)


def lent(machine: Machine) -> Any:
    def multiply(x: Any) -> Any:
        return machine.multiply(np.from_dlpack(x))

    return hostcall.callback(multiply, result=like, memory="device")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("make", "x"),
    [
        pytest.param(multiplied, tf.constant(2, "bfloat16"), id="scalars of tensors"),
        pytest.param(written, tf.range(5000.0), id="results that are written into"),
        pytest.param(lent, tf.range(5000.0), id="arrays that are lent"),
    ],
)
def test_values_that_cross_in_ways_of_their_own(
    make: Any, x: Any, route: str, file: str, machine: Machine
) -> None:
    function = make(machine)
    program = program_of(lambda x: function(x) + 1, route)
    recorded(file, machine, lambda: program(x))


def test_calls_that_nobody_waits_for(file: str) -> None:
    seen: list[float] = []
    log = hostcall.callback(lambda x: seen.append(float(x)), result=[], wait=False, name="log")

    program = tf.function(lambda x: (log(x), x + 1)[1], jit_compile=True)
    for way in (hostcall.record, hostcall.replay):
        with way(file):
            program(1.0)
            program(2.0)
        hostcall.barrier()
    assert seen == [1.0, 2.0]


def test_exceptions_are_raised_again(file: str, machine: Machine) -> None:
    class OwnError(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")

    errors = [
        KeyError("no such sensor"),
        FileNotFoundError(2, "gone", "camera"),
        OwnError(7),
        tf.errors.OutOfRangeError(None, None, "the end"),
    ]

    def fail(x: Any) -> Any:
        raise errors[machine.use() - 1]

    program = tf.function(lambda x: tf.numpy_function(fail, [x], SPEC), jit_compile=True)

    def run() -> list[tuple[type, BaseException | None]]:
        errors = [failure(program, X) for _ in range(4)]
        return [(type(error), hostcall.last_error(error)) for error in errors]

    with hostcall.record(file):
        first = run()
    machine.is_there = False
    with hostcall.replay(file):
        second = run()
    assert [kind for kind, _ in first] == [kind for kind, _ in second]
    for (_, one), (_, other) in zip(first, second, strict=True):
        if isinstance(one, OwnError):  # a class of a function, which nobody finds
            assert type(other) is hostcall.RecordedError
            assert str(other).endswith("OwnError: code 7")
        else:
            assert type(one) is type(other)
            assert str(one) == str(other)


# What `hostcall.replay` says of a program that does something else than was recorded.


def one(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x


def test_nans_and_negative_zeros_are_told_apart(file: str) -> None:
    double = hostcall.callback(lambda x: x, result=like, name="double")
    nans = np.array([0x7FC00001, 0x80000000], np.uint32).view(np.float32)
    with hostcall.record(file):
        assert double(nans).numpy().tobytes() == nans.tobytes()
    text = refusal(file, lambda: double(np.array([nans[0], 0.0], np.float32)))
    assert "element [1]: recorded -0.0, got 0.0" in text
    other = np.array([0x7FC00002, 0x80000000], np.uint32).view(np.float32)
    text = refusal(file, lambda: double(other))
    assert "recorded nan, got nan (float32), whose bits are 7fc00001 and 7fc00002" in text


def test_arguments_are_recorded_before_the_function_changes_them(file: str) -> None:
    def clear(x: Any) -> Any:
        x[...] = 0
        return x

    program = tf.function(lambda x: tf.numpy_function(clear, [x], SPEC), jit_compile=True)
    for way in (hostcall.record, hostcall.replay):
        with way(file):
            program(X)
    assert "Argument 0, element [0]: recorded 1.0" in refusal(file, lambda: program(X + 1))


def test_the_first_call_that_differs_is_told(file: str, machine: Machine) -> None:
    def measure(x: Any, y: Any) -> Any:
        return x * np.float32(machine.use())

    def body(x: Any, y: Any) -> Any:
        return tf.numpy_function(measure, [x, y], tf.TensorSpec(None, tf.float32))

    program = program_of(body, "compiled")
    with hostcall.record(file):
        program(X, 1)
        program(X, 2)
    text = refusal(file, lambda: [program(X, 1), program(X, 3)])
    assert_says(text, "call 2 of", "measure (", "Argument 1: recorded 2, got 3 (int32)")
    assert text.count("test_recording.py:") == 2
    for args, expected in [
        ((X[:2], 1), "recorded shape (3,), got (2,) (float32)"),
        ((tf.cast(X, tf.float64), 1), "recorded float32 of shape (3,), got float64 of shape (3,)"),
    ]:
        assert expected in refusal(file, functools.partial(body, *args))


def test_one_more_call_one_less_an_unknown_one_and_another_order(file: str) -> None:
    call = hostcall.callback(one, result=like)
    another = hostcall.callback(other, result=like)
    with hostcall.record(file):
        call(X), call(X + 1)
    text = refusal(file, lambda: [call(X), call(X + 1), call(X)])
    assert_says(text, "once more than in the recording", "has 2 calls of it")
    text = refusal(file, lambda: call(X))
    assert "not made again: 1 call of tests.e2e.test_recording:one. The first is call 2" in text
    text = refusal(file, lambda: another(X))
    assert "no call of a function named 'tests.e2e.test_recording:other'. It has" in text
    text = refusal(file, lambda: [call(X + 1), call(X)])
    order = "Call 2 has these arguments: the calls come in another order"
    assert_says(text, "element [0]: recorded 1.0, got 2.0", order)
    with pytest.raises(KeyError, match="mine"), hostcall.replay(file):
        raise KeyError("mine")  # an error of the user's, which is not hidden


def test_a_difference_that_the_program_swallows_is_told_at_the_end(file: str) -> None:
    call = hostcall.callback(one, result=like)
    with hostcall.record(file):
        call(X)

    def swallow() -> None:
        failure(call, X + 1)
        assert "a later call" in str(failure(call, X))

    assert "recorded 1.0, got 2.0" in refusal(file, swallow)


def test_what_cannot_be_recorded_is_told(file: str) -> None:
    callback = hostcall.callback(lambda x: object(), result=like, name="odd")
    warned = pytest.warns(RuntimeWarning, match=r"returned what cannot be recorded: builtins\.")
    with warned, hostcall.record(file), pytest.raises(tf.errors.OpError):
        callback(X)
    text = refusal(file, lambda: callback(X))
    assert "it was builtins.object, which cannot be recorded" in text


def test_one_recording_at_a_time(file: str) -> None:
    def refused(block: Any, error: type[Exception] = hostcall.RecordingError) -> str:
        with pytest.raises(error) as raised, block:
            pass
        return str(raised.value)

    with hostcall.record(file):
        assert "called within hostcall.record(" in refused(hostcall.record(file + "2"))
        assert "called within hostcall.record(" in refused(hostcall.replay(file))
    with hostcall.replay(file):
        assert "called within hostcall.replay(" in refused(hostcall.record(file + "2"))
    assert "overwrite=True" in refused(hostcall.record(file), FileExistsError)
    with hostcall.record(file, overwrite=True):
        pass
