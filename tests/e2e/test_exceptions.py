"""contract.md, "Exceptions": how what a callback raises comes back to the caller."""

import itertools
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    MODES,
    OPS,
    DetailedError,
    each_decorator,
    each_mode,
    failure,
    gradient_of,
    jitted,
    on_two,
    plain,
    raising,
    value_and_gradient,
)

X = tf.constant([1.0, 2.0])
each_way = pytest.mark.parametrize(("mode", "op"), [*itertools.product(MODES, OPS)])


def child_of(*parents: type[BaseException], **members: Any) -> Any:
    return type("Child", parents, members)


STATUS_CLASSES = {
    tf.errors.InvalidArgumentError: [
        ValueError, TypeError, UnicodeError, child_of(ValueError), child_of(KeyError, TypeError),
    ],
    tf.errors.OutOfRangeError: [StopIteration, child_of(StopIteration)],
    tf.errors.ResourceExhaustedError: [MemoryError, child_of(MemoryError)],
    tf.errors.UnimplementedError: [NotImplementedError, child_of(NotImplementedError)],
    tf.errors.UnknownError: [
        KeyError, RuntimeError, RecursionError, ZeroDivisionError, OSError, AssertionError,
        StopAsyncIteration, SystemExit, GeneratorExit, child_of(BaseException),
        tf.errors.OutOfRangeError,
    ],
}  # fmt: skip


def raising_in_turn(mode: Any, op: Any) -> tuple[Callable[..., Any], list[BaseException]]:
    exceptions: list[BaseException] = []

    def fail(x: Any) -> Any:
        raise exceptions[-1]

    return mode(on_two(op, fail)), exceptions


@each_way
def test_each_exception_has_its_status_class(mode: Any, op: Any) -> None:
    run, exceptions = raising_in_turn(mode, op)
    for status, kinds in STATUS_CLASSES.items():
        for kind in kinds:
            of_tensorflow = issubclass(kind, tf.errors.OpError)
            exceptions.append(kind(None, None, "blah") if of_tensorflow else kind("blah"))
            for _ in range(2):
                error = failure(run, X)
                assert type(error) is status
                assert re.search(rf"{kind.__name__}: '?blah", str(error))


@each_way
def test_ctrl_c_in_a_callback_ends_the_program_as_it_would_outside(mode: Any, op: Any) -> None:
    interrupt = KeyboardInterrupt("blah")
    with pytest.raises(KeyboardInterrupt) as caught:
        mode(on_two(op, raising(interrupt)))(X)
    assert caught.value is interrupt


@each_way
def test_the_message_has_text_and_traceback_in_call_order(mode: Any, op: Any) -> None:
    def inner(x: Any) -> None:
        raise ValueError("blah")

    def outer(x: Any) -> None:
        inner(x)

    text = str(failure(mode(on_two(op, outer)), X))
    # The expression of TensorFlow's own py_func_test.
    assert re.search(r"ValueError: blah.*in outer.*in inner.*: blah", text, re.DOTALL)
    assert f'File "{__file__}", line {inner.__code__.co_firstlineno + 1}' in text
    if mode is jitted:
        assert "hostcall/_" not in text
        assert "script_ops.py" not in text


@each_way
def test_the_exception_itself_is_reached(mode: Any, op: Any) -> None:
    raised = []

    def deepest() -> None:
        try:
            _ = dict[str, int]()["absent"]
        except KeyError as cause:
            raised.append(DetailedError("blah"))
            raise raised[-1] from cause

    def fail(x: Any) -> None:
        deepest()

    run = mode(on_two(op, fail))
    for step in range(3):
        found = hostcall.last_error(failure(run, X))
        assert found is raised[step]
        assert hostcall.last_error() is found
        assert found.code == 7
        assert isinstance(found.__cause__, KeyError)
        names = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
        assert names[-2:] == ["fail", "deepest"]


@each_mode
def test_each_error_leads_to_its_own_exception(mode: Any) -> None:
    first, second = ValueError("same text"), ValueError("same text")
    one = failure(mode(on_two(tf.numpy_function, raising(first))), X)
    other = failure(mode(on_two(tf.py_function, raising(second))), X)
    assert hostcall.last_error(other) is second
    assert hostcall.last_error(one) is first
    assert hostcall.last_error() is second


# Where the call is: each takes a program, and makes one of it.
NESTS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "function": lambda run: lambda x: jitted(jitted(run))(x),
    "loop": lambda run: (
        lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, run(v)), [0, x])[1]
    ),
    "branch": lambda run: lambda x: tf.cond(x[0] > 0.0, lambda: run(x), lambda: x),
    "case": lambda run: (
        lambda x: tf.switch_case(tf.cast(x[0], tf.int32), [lambda: x, lambda: run(x)])
    ),
    "map": lambda run: lambda x: tf.map_fn(run, tf.stack([x, x])),
    "recorded": lambda run: lambda x: value_and_gradient(lambda x: run(x * x) + x, x),
    "gradient": lambda run: (
        lambda x: gradient_of(tf.custom_gradient(lambda x: (tf.identity(x), run)), x)
    ),
}


@pytest.mark.parametrize("nest", NESTS)
@each_decorator
def test_nested_calls_fail_alike(op: Any, nest: str) -> None:
    raised = DetailedError("blah")
    run = jitted(NESTS[nest](on_two(op, raising(raised))))
    for _ in range(2):
        error = failure(run, X)
        assert type(error) is tf.errors.InvalidArgumentError
        assert "DetailedError: blah" in str(error)
        assert hostcall.last_error(error) is raised


@each_way
@pytest.mark.parametrize("size", [2, 300_000])
def test_a_failed_call_leaves_later_calls_sound(mode: Any, op: Any, size: int) -> None:
    def moody(x: Any) -> Any:
        if np.asarray(x)[0] % 2:
            raise ValueError("odd")
        return x * np.float32(2)

    run = mode(lambda x: tf.ensure_shape(op(moody, [x + 0.0], tf.float32), [size]) + 1.0)
    for step in range(10):
        x = tf.fill([size], float(step))
        if step % 2:
            assert type(failure(run, x)) is tf.errors.InvalidArgumentError
        else:
            assert (run(x).numpy() == 2 * step + 1).all()


def test_of_two_failures_the_first_in_program_order_counts() -> None:
    first, second = ValueError("first"), KeyError("second")

    def both(x: tf.Tensor) -> tf.Tensor:
        y = on_two(tf.numpy_function, raising(first))(x)
        return y + on_two(tf.numpy_function, raising(second))(x)

    run = jitted(both)
    for _ in range(3):
        error = failure(run, X)
        assert type(error) is tf.errors.InvalidArgumentError
        assert hostcall.last_error(error) is first
        assert hostcall.last_error() is first


NASTY_TEXTS = [
    "a\0b", "x\udcffy", "héé ☃", "", "%s {0} %n", "many words " * 1_000, "[hostcall error 1: x]",
]  # fmt: skip


# Exceptions that cannot be told.
ODD_ERRORS = [
    child_of(ValueError, __str__=lambda self: 1 // 0),
    child_of(ValueError, __str__=lambda self: sys.exit("no text")),
    child_of(ValueError, __str__=lambda self: 5),
    child_of(ValueError, __notes__=5),
]


@each_way
def test_no_text_of_an_exception_hides_it(mode: Any, op: Any) -> None:
    run, exceptions = raising_in_turn(mode, op)
    for raised in [*map(DetailedError, NASTY_TEXTS), *(kind() for kind in ODD_ERRORS)]:
        exceptions.append(raised)
        error = failure(run, X)
        assert type(error) is tf.errors.InvalidArgumentError
        assert type(raised).__name__ in str(error)
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
