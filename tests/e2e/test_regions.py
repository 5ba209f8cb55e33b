"""Host ops that one program calls: TensorFlow's own kernels, and their errors."""

import functools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE, MODE_OF_REGIONS
from tests.support.e2e import refused_programs
from tests.support.helpers import MODES, assert_same, assert_says, failure, jitted, plain, to_numpy
from tests.support.threads import in_threads

X = tf.constant([1.0, 3.0, 2.0, 3.0])


pytestmark = pytest.mark.usefixtures("auto_route")


def text_of(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.as_string(x))


def several_results(x: tf.Tensor) -> Any:
    values, vectors = tf.linalg.eig(tf.linalg.diag(x))
    return tf.abs(values) + 1.0, tf.abs(vectors) * 2.0


def strings_in_a_loop(x: tf.Tensor) -> Any:
    text = tf.constant("")
    for i in tf.range(3):
        text = tf.strings.join([text, tf.strings.as_string(i), "a"])
        x = x + 1.0
    return text, x


def strings_through_functions(x: tf.Tensor) -> Any:
    inner = tf.function(lambda s, y: (tf.strings.join([s, "!"]), y + 1.0))
    text, y = inner(tf.strings.as_string(x), x)
    return inner(text, y)


def other_dtypes(x: tf.Tensor) -> Any:
    names = ["int8", "int16", "int64", "bool", "float64", "complex64"]
    printed = [tf.strings.length(tf.strings.as_string(tf.cast(x, dtype))) for dtype in names]
    halves = [tf.strings.to_number(tf.strings.as_string(tf.cast(x, tf.int8)), tf.int64)]
    return printed, halves, tf.linalg.eigvals(tf.cast(tf.linalg.diag(x), tf.complex128))


def in_functions(x: tf.Tensor) -> Any:
    inner = tf.function(lambda y: text_of(y) + 1.0)
    return inner(x) * inner(x + 1.0)


@functools.cache
def _state() -> Any:
    """A variable, and a table."""
    with tf.init_scope():
        keys, values = tf.constant([1, 2, 3], tf.int64), tf.constant([10.0, 20.0, 30.0])
        initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
        return tf.Variable([0.0] * 4), tf.lookup.StaticHashTable(initializer, -1.0)


def a_variable(x: tf.Tensor) -> Any:
    variable, _ = _state()
    variable.assign(x)
    first = text_of(variable)
    variable.assign_add(x)
    return first, text_of(variable), variable.read_value()


PROGRAMS: dict[str, Callable[[tf.Tensor], Any]] = {
    "without a kernel for the dtype": refused_programs.PROGRAMS["without_a_kernel_for_its_dtype"],
    "several results": several_results,
    "several regions": lambda x: (tf.cos(text_of(tf.sin(text_of(x)))), text_of(x + 1.0)),
    "in a loop's condition": lambda x: tf.while_loop(
        lambda y: tf.reduce_sum(text_of(tf.abs(y))) < 100.0, lambda y: y * 2.0, [x]
    ),
    "in branches": lambda x: (
        tf.cond(x[0] > 2.0, lambda: text_of(x), lambda: text_of(x * 3.0)) + 1.0
    ),
    "in a switch": lambda x: (
        tf.switch_case(
            tf.cast(x[0], tf.int32), [lambda: x, lambda: text_of(x), lambda: text_of(x + 1.0)]
        )
        * 2.0
    ),
    "in functions": in_functions,
    "in a map": lambda x: tf.map_fn(text_of, x),
    "strings in a loop": strings_in_a_loop,
    "strings of branches": lambda x: (
        tf.cond(x[0] > 2.0, lambda: tf.strings.as_string(x), lambda: tf.constant(["b"] * 4)),
        x * 2.0,
    ),
    "strings through functions": strings_through_functions,
    "a constant string returned": refused_programs.PROGRAMS["a_constant_string"],
    "no elements": lambda x: (text_of(x[:0]), tf.reduce_sum(text_of(x[:0]))),
    "other dtypes": other_dtypes,
    "a large constant": lambda x: (
        tf.strings.length(
            tf.strings.as_string(x[:2])
            + tf.strings.reduce_join(tf.strings.as_string(LARGE_CONSTANT), axis=1)
        ),
        x[:2],
    ),
    "a dataset": refused_programs.PROGRAMS["a_dataset"],
    "a variable": a_variable,
    "a table": lambda x: _state()[1].lookup(tf.cast(x, tf.int64)) * 2.0,
}
LARGE_CONSTANT: Any = np.arange(1000.0, dtype=np.float32).reshape(2, 500)
each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@pytest.fixture
def one_program(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Makes sure that what XLA refuses in the test becomes one program, if the device has those."""
    if DEVICE:
        yield
        return
    from hostcall._compiler import announcements

    announcements._told.clear()
    with caplog.at_level(logging.WARNING, "hostcall"):
        yield
    messages = [record.message for record in caplog.get_records("call")]
    lines = [message for message in messages if "does not compile" in message]
    assert lines
    for line in lines:
        assert "the rest is one program, which calls them" in line


@pytest.mark.usefixtures("one_program")
@each_program
def test_one_program_computes_what_plain_graph_mode_does(program: Any) -> None:
    function, expected = jitted(program), plain(program)
    for x in (X, X + 1.0, -X):
        assert_same(to_numpy(function(x)), to_numpy(expected(x)))
    assert hostcall.explain(function, X).functions[0].mode == MODE_OF_REGIONS


@pytest.mark.usefixtures("one_program")
def test_an_iterator_goes_on_from_call_to_call() -> None:
    iterator = iter(tf.data.Dataset.range(7))

    @jitted
    def program(x: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(x)
        for _ in tf.range(3):
            total += tf.cast(next(iterator), tf.float32)
        return total

    assert [float(program([0.0])) for _ in range(2)] == [3.0, 12.0]
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError, match="IteratorGetNext"):
            program([0.0])


@pytest.mark.usefixtures("one_program")
def test_effects_keep_the_order_of_the_program(tmp_path: Path) -> None:
    def build(stream: str, journal: list[str]) -> Callable[..., Any]:
        def note(tag: str) -> None:
            tf.py_function(lambda: journal.append(tag), [], [])

        def program(x: tf.Tensor) -> Any:
            tf.print("first", x[0], output_stream=stream)
            note("one")
            for i in tf.range(2):
                tf.print("turn", i, output_stream=stream)
                note("turn")
                if x[0] > 1.0:
                    tf.print("large", output_stream=stream)
            tf.print("last", tf.reduce_sum(x), output_stream=stream)
            return x * 2.0

        return program

    for number, x in enumerate((X, X + 1.0)):
        printed = []
        for mode in MODES:
            journal: list[str] = []
            file = tmp_path / f"{number} {mode.__name__}"
            assert_same(mode(build(f"file://{file}", journal))(x).numpy(), x.numpy() * 2)
            assert journal == ["one", "turn", "turn"]
            printed.append(file.read_text())
        assert printed[0] == printed[1]


def test_a_failed_call_leaves_the_next_one_sound() -> None:
    program = jitted(lambda texts, x: tf.strings.to_number(texts) + x)
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="could not correctly convert"):
            program(tf.constant(["no"]), [1.0])
        assert program(tf.constant(["2"]), [1.0]).numpy() == [3.0]


@pytest.mark.usefixtures("one_program")
def test_threads_have_references_of_their_own() -> None:
    @jitted
    def program(texts: tf.Tensor, x: tf.Tensor) -> Any:
        for _ in tf.range(20):
            texts = tf.strings.join([texts, "."])
            x = x + 1.0
        return texts, x

    program(tf.constant(["0"]), tf.constant(0.0))

    def call(i: int) -> None:
        for _ in range(5):
            texts, x = program(tf.constant([str(i)]), tf.constant(float(i)))
            assert texts.numpy() == [f"{i}{'.' * 20}".encode()]
            assert float(x) == i + 20

    in_threads(4, call)


@pytest.mark.usefixtures("one_program")
def test_sizes_that_change() -> None:
    signature = [tf.TensorSpec([None])]
    program = tf.function(in_functions, jit_compile=True, input_signature=signature)
    for size in (4, 0, 3, 4):
        assert_same(program(X[:size]).numpy(), plain(in_functions)(X[:size]).numpy())


# An error of one of TensorFlow's kernels names the node and the line, as without compilation.

TEXT = tf.constant("abc")
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


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
def in_turns(text: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, y + tf.strings.to_number(text, name="turn")

    return tf.while_loop(lambda i, _: i < 2, body, [0, 0.0])[1]


@_case(tf.constant(1.0))
def in_a_loop_with_a_region(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.strings.to_number(tf.strings.as_string(y) + "abc", name="turn")

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


@_case(tf.constant(b"no image"))
def an_image(data: tf.Tensor) -> Any:
    return tf.cast(tf.io.decode_jpeg(data, channels=3, name="image"), tf.float32) * 2.0


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
    error = failure(function, *args)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    return str(error).partition(" [Op:")[0]


def _without_frames(message: str) -> list[str]:
    """A message without the frames, which tell who called."""
    return [line for line in message.splitlines() if line.strip() and not line.startswith("  File")]


@pytest.mark.parametrize(("program", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_the_message_is_that_of_plain_graph_mode_and_tells_the_line(
    program: Any, args: tuple[Any, ...]
) -> None:
    function = jitted(program)
    expected = _without_frames(_message(plain(program), args))
    for _ in range(2):
        message = _message(function, args)
        assert _without_frames(message) == expected
        assert_says(message, 'test_regions.py", line ', f", in {program.__name__}")
