"""contract.md, "Exceptions": how what a callback raises comes back to the caller."""

import re
import traceback
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    DetailedError,
    each_op,
    failure,
    jitted,
    on_two,
    plain,
    raising,
)

FLOAT = tf.float32
X = tf.constant([1.0, 2.0])


class ChildOfValueError(ValueError):
    pass


class ChildOfStopIteration(StopIteration):
    pass


class ChildOfMemoryError(MemoryError):
    pass


class ChildOfNotImplementedError(NotImplementedError):
    pass


class OfTwoParentsError(KeyError, TypeError):
    pass


class NotEvenAnException(BaseException):
    pass


CLASSES = {
    **dict.fromkeys([ValueError, TypeError, ChildOfValueError], tf.errors.InvalidArgumentError),
    **dict.fromkeys([UnicodeError, OfTwoParentsError], tf.errors.InvalidArgumentError),
    **dict.fromkeys([StopIteration, ChildOfStopIteration], tf.errors.OutOfRangeError),
    **dict.fromkeys([MemoryError, ChildOfMemoryError], tf.errors.ResourceExhaustedError),
    **dict.fromkeys(
        [NotImplementedError, ChildOfNotImplementedError], tf.errors.UnimplementedError
    ),
    **dict.fromkeys(
        [KeyError, RuntimeError, RecursionError, ZeroDivisionError, OSError, AssertionError],
        tf.errors.UnknownError,
    ),
    **dict.fromkeys(
        [StopAsyncIteration, SystemExit, GeneratorExit, NotEvenAnException],
        tf.errors.UnknownError,
    ),
}


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("kind", CLASSES)
def test_each_exception_has_its_status_class(build: Any, op: Any, kind: Any) -> None:
    run = build(on_two(op, raising(kind("blah"))))
    for _ in range(3):
        error = failure(run, X)
        assert type(error) is CLASSES[kind]
        assert re.search(rf"{kind.__name__}: '?blah", str(error))


@pytest.mark.parametrize("build", MODES)
@each_op
def test_ctrl_c_in_a_callback_ends_the_program_as_it_would_outside(build: Any, op: Any) -> None:
    interrupt = KeyboardInterrupt("blah")
    with pytest.raises(KeyboardInterrupt) as caught:
        build(on_two(op, raising(interrupt)))(X)
    assert caught.value is interrupt


@pytest.mark.parametrize("build", MODES)
@each_op
def test_tensorflows_own_errors_are_unknown_ones(build: Any, op: Any) -> None:
    run = build(on_two(op, raising(tf.errors.OutOfRangeError(None, None, "blah"))))
    error = failure(run, X)
    assert type(error) is tf.errors.UnknownError
    assert "OutOfRangeError: blah" in str(error)


@pytest.mark.parametrize("build", MODES)
@each_op
def test_the_message_has_text_and_traceback_in_call_order(build: Any, op: Any) -> None:
    def inner(x: Any) -> None:
        raise ValueError("blah")

    def outer(x: Any) -> None:
        inner(x)

    error = failure(build(on_two(op, outer)), X)
    # The expression of TensorFlow's own py_func_test.
    assert re.search(r"ValueError: blah.*in outer.*in inner.*: blah", str(error), re.DOTALL)
    assert f'File "{__file__}", line {inner.__code__.co_firstlineno + 1}' in str(error)


@each_op
def test_the_message_does_not_show_our_own_frames(op: Any) -> None:
    error = failure(jitted(on_two(op, raising(ValueError("blah")))), X)
    assert "hostcall/_" not in str(error)
    assert "script_ops.py" not in str(error)


@pytest.mark.parametrize("build", MODES)
@each_op
def test_the_exception_itself_is_reached(build: Any, op: Any) -> None:
    raised = []

    def deepest() -> None:
        try:
            _ = dict[str, int]()["absent"]
        except KeyError as cause:
            raised.append(DetailedError("blah"))
            raise raised[-1] from cause

    def fail(x: Any) -> None:
        deepest()

    run = build(on_two(op, fail))
    for step in range(3):
        found = hostcall.last_error(failure(run, X))
        assert found is raised[step]
        assert hostcall.last_error() is found
        assert found.code == 7
        assert isinstance(found.__cause__, KeyError)
        names = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
        assert names[-2:] == ["fail", "deepest"]


@pytest.mark.parametrize("build", MODES)
def test_each_error_leads_to_its_own_exception(build: Any) -> None:
    first, second = ValueError("same text"), ValueError("same text")
    one = failure(build(on_two(tf.numpy_function, raising(first))), X)
    other = failure(build(on_two(tf.py_function, raising(second))), X)
    assert hostcall.last_error(other) is second
    assert hostcall.last_error(one) is first
    assert hostcall.last_error() is second


def test_executing_eagerly() -> None:
    raised = DetailedError("blah")
    error = failure(tf.py_function, raising(raised), [X], FLOAT)
    assert type(error) is tf.errors.InvalidArgumentError
    assert hostcall.last_error(error) is raised


NASTY_TEXTS = [
    "a\0b",
    "x\udcffy",
    "héé ☃",
    "",
    "%s {0} %n",
    "many words " * 1_000,
    "[hostcall error 1: x]",
]


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("text", NASTY_TEXTS, ids=ascii)
def test_no_text_of_an_exception_hides_it(build: Any, op: Any, text: str) -> None:
    raised = DetailedError(text)
    error = failure(build(on_two(op, raising(raised))), X)
    assert type(error) is tf.errors.InvalidArgumentError
    assert "Traceback (most recent call last)" in str(error)
    assert hostcall.last_error(error) is raised


class UntoldError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class EndingError(ValueError):
    def __str__(self) -> str:
        raise SystemExit("no text")


class NumberedError(ValueError):
    def __str__(self) -> Any:
        return 5


class OddNotesError(ValueError):
    __notes__: Any = 5


ODD = [UntoldError, EndingError, NumberedError, OddNotesError]


@pytest.mark.parametrize("build", MODES)
@each_op
@pytest.mark.parametrize("kind", ODD)
def test_an_exception_that_cannot_be_told(build: Any, op: Any, kind: Any) -> None:
    raised = kind()
    error = failure(build(on_two(op, raising(raised))), X)
    assert type(error) is tf.errors.InvalidArgumentError
    assert kind.__name__ in str(error)
    assert "Traceback (most recent call last)" in str(error)
    assert hostcall.last_error(error) is raised


def test_what_tensorflow_would_read_as_names_of_nodes_stays_in_the_text() -> None:
    text = "{{function_node f}} of {{node a}}"
    error = failure(jitted(on_two(tf.numpy_function, raising(ValueError(text)))), X)
    assert f"ValueError: {text}\nTraceback" in str(error)


def test_a_foreign_error_has_no_exception() -> None:
    failure(jitted(on_two(tf.numpy_function, raising(ValueError("ours")))), X)
    assert hostcall.last_error(ValueError("[hostcall]")) is None
    assert hostcall.last_error(KeyError()) is None
    error = failure(plain(lambda x: tf.ensure_shape(tf.boolean_mask(x, x > 0.0), [3])), X)
    assert hostcall.last_error(error) is None
