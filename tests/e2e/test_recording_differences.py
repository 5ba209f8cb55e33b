"""What `hostcall.replay` says of a program that does something else than was recorded."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.recordings import Machine, X, program_of, refusal


def one(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x


def test_nans_and_negative_zeros_are_told_apart(file: str) -> None:
    double = hostcall.callback(lambda x: x, result=lambda x: x, name="double")
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

    @tf.function(jit_compile=True)
    def program(x: Any) -> Any:
        return tf.numpy_function(clear, [x], tf.TensorSpec([3], tf.float32))

    with hostcall.record(file):
        program(X)
    with hostcall.replay(file):
        program(X)
    assert "Argument 0, element [0]: recorded 1.0" in refusal(file, lambda: program(X + 1))


def test_the_first_call_that_differs_is_told(file: str, machine: Machine) -> None:
    def measure(x: Any, y: Any) -> Any:
        return x * machine.use()

    def body(x: Any, y: Any) -> Any:
        return tf.numpy_function(measure, [x, y], tf.TensorSpec(None, tf.float32))

    program = program_of(body, "compiled")
    with hostcall.record(file):
        program(X, 1)
        program(X, 2)
    text = refusal(file, lambda: [program(X, 1), program(X, 3)])
    assert "call 2 of" in text
    assert "measure (" in text
    assert text.count("test_recording_differences.py:") == 2
    assert "Argument 1: recorded 2, got 3 (int32)" in text
    for args, expected in [
        ((X[:2], 1), "recorded shape (3,), got (2,) (float32)"),
        ((tf.cast(X, tf.float64), 1), "recorded float32 of shape (3,), got float64 of shape (3,)"),
    ]:
        assert expected in refusal(file, functools.partial(body, *args))


def test_one_more_call_one_less_and_an_unknown_one(file: str) -> None:
    call = hostcall.callback(one, result=lambda x: x)
    another = hostcall.callback(other, result=lambda x: x)
    with hostcall.record(file):
        call(X)
        call(X)
    text = refusal(file, lambda: [call(X), call(X), call(X)])
    assert "once more than in the recording" in text
    assert "has 2 calls of it" in text
    text = refusal(file, lambda: call(X))
    assert (
        "not made again: 1 call of tests.e2e.test_recording_differences:one. The first is call 2"
        in text
    )
    text = refusal(file, lambda: another(X))
    assert (
        "no call of a function named 'tests.e2e.test_recording_differences:other'. It has" in text
    )


def test_calls_in_another_order(file: str) -> None:
    call = hostcall.callback(one, result=lambda x: x)
    with hostcall.record(file):
        call(X), call(X + 1)
    text = refusal(file, lambda: [call(X + 1), call(X)])
    assert "element [0]: recorded 1.0, got 2.0" in text
    assert "Call 2 has these arguments: the calls come in another order" in text


def test_an_error_of_the_users_is_not_hidden(file: str) -> None:
    call = hostcall.callback(one, result=lambda x: x)
    with hostcall.record(file):
        call(X)
    with pytest.raises(KeyError, match="mine"), hostcall.replay(file):
        raise KeyError("mine")


def test_a_difference_that_the_program_swallows_is_told_at_the_end(file: str) -> None:
    call = hostcall.callback(one, result=lambda x: x)
    with hostcall.record(file):
        call(X)

    def swallow() -> None:
        with pytest.raises(tf.errors.OpError):
            call(X + 1)
        with pytest.raises(tf.errors.OpError, match="a later call"):
            call(X)

    assert "recorded 1.0, got 2.0" in refusal(file, swallow)


def test_what_cannot_be_recorded_is_told(file: str) -> None:
    callback = hostcall.callback(lambda x: object(), result=lambda x: x, name="odd")
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
