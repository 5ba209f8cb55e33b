"""An error of one of TensorFlow's kernels names the node and the line, as without compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.support.helpers import jitted, plain

TEXT = tf.constant("abc")
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


@pytest.fixture(autouse=True)
def _auto(auto_route: None) -> None:
    pass


def _case(*args: Any) -> Any:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((function, args))
        return function

    return add


@_case(tf.constant("1"), TEXT)
def the_second_of_two(one: tf.Tensor, other: tf.Tensor) -> Any:
    return tf.strings.to_number(one, name="first") + tf.strings.to_number(other, name="second")


@_case(tf.constant(1.0))
def in_a_region(x: tf.Tensor) -> Any:
    return tf.strings.to_number(tf.strings.as_string(x) + "abc", name="number") * 2.0


@_case(TEXT)
def an_image(text: tf.Tensor) -> Any:
    return tf.io.decode_jpeg(text, name="image") + 1


@_case(TEXT)
def in_a_loop(text: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, y + tf.strings.to_number(text, name="turn")

    return tf.while_loop(lambda i, _: i < 2, body, [0, 0.0])[1]


@_case(tf.constant(1.0))
def in_a_loop_with_a_region(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.strings.to_number(tf.strings.as_string(y) + "abc", name="turn")

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


@_case(TEXT)
def in_a_branch(text: tf.Tensor) -> Any:
    return tf.cond(
        tf.strings.length(text) > 1, lambda: tf.strings.to_number(text, name="one"), lambda: 0.0
    )


@_case(tf.constant([1.0, 2.0, 3.0]))
def a_table(x: tf.Tensor) -> Any:
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
    table.insert(tf.range(2, dtype=tf.int64), x, name="insert")
    return x * 2.0


@_case(TEXT)
def beside_others_at_once(text: tf.Tensor) -> Any:
    """In a function whose nodes run on several threads."""
    printed = [tf.print(text, output_stream="file:///dev/null") for _ in range(2)]
    with tf.control_dependencies(printed):
        return tf.strings.to_number(text, name="number") + 1.0


def _message(function: Any, args: tuple[Any, ...]) -> str:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        function(*args)
    return str(caught.value).partition(" [Op:")[0]


@pytest.mark.parametrize(("program", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_the_message_is_that_of_plain_graph_mode(program: Any, args: tuple[Any, ...]) -> None:
    function = jitted(program)
    expected = _without_frames(_message(plain(program), args))
    for _ in range(2):
        assert _without_frames(_message(function, args)) == expected


@pytest.mark.parametrize(("program", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_the_message_tells_the_line(program: Any, args: tuple[Any, ...]) -> None:
    message = _message(jitted(program), args)
    assert 'test_host_op_errors.py", line ' in message
    assert f", in {program.__name__}" in message


def _without_frames(message: str) -> list[str]:
    """A message without the frames, which tell who called."""
    return [line for line in message.splitlines() if line.strip() and not line.startswith("  File")]
