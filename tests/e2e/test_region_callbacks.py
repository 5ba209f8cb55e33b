"""Callbacks that take or return strings, which one program calls in regions."""

import gc
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.device import MODE_OF_REGIONS
from tests.support.helpers import (
    MODES,
    DetailedError,
    assert_close,
    assert_same,
    assert_says,
    each_op,
    failure,
    gradient_of,
    jitted,
    like,
    plain,
    to_numpy,
)

X = tf.constant([1.0, 3.0, 2.0])


pytestmark = pytest.mark.usefixtures("auto_route")


def scaled(x: Any, how: Any) -> Any:
    how = how if isinstance(how, bytes) else how.numpy()
    return x * 2.0 if how == b"double" else x - 1.0


def names(x: Any) -> np.ndarray:
    return np.array([b"%d" % int(value) for value in np.asarray(x)], object)


hostcall.declare(scaled, result=like)
hostcall.declare(names, result=lambda x: tf.TensorSpec(x.shape, tf.string))


def beside_a_text(function: Any, x: tf.Tensor, op: Any = tf.numpy_function) -> tf.Tensor:
    return op(function, [x, "text"], tf.TensorSpec([3], tf.float32))


def mode_of(function: Any, *args: Any) -> str:
    return hostcall.explain(function, *args).functions[0].mode


def a_constant(op: Any, x: tf.Tensor) -> Any:
    return op(scaled, [tf.sin(x), "double"], tf.float32) + 1.0


def several(op: Any, x: tf.Tensor) -> Any:
    y = op(scaled, [x, "double"], tf.float32)
    z = op(lambda v: v + 1.0, [y * 2.0], tf.TensorSpec([3], tf.float32))
    return op(scaled, [tf.cos(z), "less"], tf.float32), y


def in_a_function(op: Any, x: tf.Tensor) -> Any:
    inner = tf.function(lambda y: op(scaled, [y, "less"], tf.float32))
    return inner(x) * inner(x + 1.0)


def in_a_loop(op: Any, x: tf.Tensor) -> Any:
    for _ in tf.range(3):
        x = op(scaled, [x, "double"], tf.float32)
    return x


PROGRAMS: dict[str, Callable[[Any, tf.Tensor], Any]] = {
    "a constant": a_constant,
    "several": several,
    "texts within": lambda op, x: tf.strings.to_number(op(names, [x], tf.string)) * 2.0,
    "texts out": lambda op, x: (op(names, [x * 2.0], tf.string), x + 1.0),
    "in a loop": in_a_loop,
    "in branches": lambda op, x: tf.cond(
        x[0] > 1.0,
        lambda: op(scaled, [x, "double"], tf.float32),
        lambda: op(scaled, [x, "less"], tf.float32) + 1.0,
    ),
    "in a function": in_a_function,
    "a chosen text": lambda op, x: op(
        scaled, [x, tf.cond(x[0] > 1.0, lambda: "double", lambda: "less")], tf.float32
    ),
}
each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@each_op
@each_program
def test_one_program(program: Any, op: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hostcall"):
        function = jitted(lambda x: program(op, x))
        expected = plain(lambda x: program(op, x))
        for x in (X, X + 1.0):
            assert_same(to_numpy(function(x)), to_numpy(expected(x)))
        assert_same(to_numpy(plain(lambda x: function(x))(X)), to_numpy(expected(X)))
    assert mode_of(function, X) == MODE_OF_REGIONS
    assert not [record for record in caplog.records if record.name == "hostcall"]


@each_program
def test_partitioned_where_that_is_asked_for(program: Any) -> None:
    with hostcall.scope(route="partition"):
        function = jitted(lambda x: program(tf.numpy_function, x))
        results = to_numpy(function(X))
    assert_same(results, to_numpy(plain(lambda x: program(tf.numpy_function, x))(X)))
    assert mode_of(function, X) == "partitioned"


def test_sizes_that_only_xla_knows() -> None:
    function = tf.function(
        lambda x: a_constant(tf.numpy_function, x),
        jit_compile=True,
        input_signature=[tf.TensorSpec([None])],
    )
    for size in (3, 0, 2, 3):
        x = X[:size]
        expected = plain(lambda x: a_constant(tf.numpy_function, x))(x)
        assert_same(function(x).numpy(), expected.numpy())
    assert mode_of(function) == MODE_OF_REGIONS


def test_a_size_that_nobody_knows_is_partitioned() -> None:
    def kept(x: np.ndarray, how: bytes) -> np.ndarray:
        return x[x > 1.0] if how == b"large" else x

    def program(x: tf.Tensor) -> Any:
        texts = tf.numpy_function(lambda x: names(x), [x], tf.string)
        total = tf.reduce_sum(tf.numpy_function(kept, [x, "large"], tf.float32)) * 2.0
        return tf.strings.to_number(texts)[:1] + x, total

    function = jitted(program)
    assert_same(to_numpy(function(X)), to_numpy(plain(program)(X)))
    assert mode_of(function, X) == "partitioned"
    advice = [one.advice for one in hostcall.explain(function, X).boundaries]
    assert any("hostcall.declare(kept, result=" in line for line in advice), advice


@pytest.mark.cpu("there are no regions on other devices")
def test_gradients() -> None:
    def loss(x: tf.Tensor) -> tf.Tensor:
        y = tf.py_function(scaled, [tf.sin(x), "double"], tf.float32)
        return tf.reduce_sum(y * y)

    def cubes(x: tf.Tensor) -> Any:
        for _ in tf.range(3):
            x = beside_a_text(lambda v, how: v * v * 0.5, x, tf.py_function)
            x = tf.ensure_shape(x, [3])
        return x

    def slope(x: tf.Tensor) -> Any:
        return gradient_of(loss, x)

    def slopes(x: tf.Tensor) -> Any:
        return slope(x), gradient_of(cubes, x)

    assert_close(jitted(slopes)(X), plain(slopes)(X))
    assert_close(gradient_of(jitted(loss), X), plain(slope)(X))
    assert mode_of(jitted(slope), X) == MODE_OF_REGIONS


def test_order_with_other_callbacks() -> None:
    def build(journal: list[Any]) -> Callable[..., Any]:
        def note(tag: Any) -> None:
            tf.numpy_function(journal.append, [tag], [])

        def program(x: tf.Tensor) -> Any:
            note(x[0])
            note("first")
            for i in tf.range(2):
                note(i)
                note("turn")
            if x[0] > 1.0:
                note("large")
            note(x[1])
            return x * 2.0

        return program

    for x in (X, X + 1.0):
        journals: list[list[Any]] = [[], []]
        for mode, journal in zip(MODES, journals, strict=True):
            mode(build(journal))(x)
        assert journals[0] == journals[1]


@each_op
def test_errors_are_the_exceptions_themselves(op: Any) -> None:
    raised = DetailedError("blah", 5)

    def fail(x: Any, how: Any) -> Any:
        raise raised

    expected, error = (failure(mode(lambda x: beside_a_text(fail, x, op)), X) for mode in MODES)
    assert type(error) is type(expected)
    assert hostcall.last_error(error) is raised
    assert_says(error.message, "test_region_callbacks.py", "DetailedError: blah")


def test_a_result_of_another_shape_than_declared() -> None:
    def program(x: tf.Tensor) -> Any:
        y = tf.numpy_function(lambda x, how: x[:2], [x, "text"], tf.float32)
        y.set_shape([3])
        return y * 2.0

    error = failure(jitted(program), X)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error.message, "(2,)", "(3,)", "0-th value", "test_region_callbacks.py")


@pytest.mark.cpu("XLA_CPU's own kernel of assignments checks no shapes")
def test_a_result_of_another_shape_than_its_consumer_wants() -> None:
    variable = tf.Variable(tf.zeros([3]))

    def program(x: tf.Tensor) -> Any:
        variable.assign(tf.numpy_function(lambda x, how: x[:2], [x, "text"], tf.float32))
        return variable * 2.0

    error = failure(jitted(program), X)
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert_says(error.message, "(2,)", "(3,)")
    assert_same(variable.numpy(), np.zeros([3], np.float32))


@each_op
def test_arguments_outlive_the_program(op: Any) -> None:
    kept: list[Any] = []

    def keep(x: Any, how: Any) -> Any:
        kept.append(x)
        return x + 0.0

    function = jitted(lambda x: op(keep, [x * 3.0, "text"], tf.TensorSpec([100], tf.float32)))
    for i in range(5):
        function(tf.fill([100], float(i)))
    gc.collect()
    for i, array in enumerate(kept):
        assert_same(np.asarray(array), np.full([100], 3.0 * i, np.float32))


def test_functions_may_write_to_their_arrays() -> None:
    def overwrite(x: np.ndarray, how: bytes) -> np.ndarray:
        x[...] = 7.0
        return x

    def program(x: tf.Tensor) -> Any:
        y = x * 2.0
        return beside_a_text(overwrite, y), y

    assert_same(to_numpy(jitted(program)(X)), (np.full(3, 7.0, np.float32), X.numpy() * 2))


@pytest.mark.usefixtures("collected_stats")
@pytest.mark.parametrize("stateful", [True, False])
def test_each_call_of_a_callback_of_hostcalls_own_is_made_and_counted(stateful: bool) -> None:
    def moved(x: np.ndarray, how: bytes) -> np.ndarray:
        return x + (1.0 if how == b"up" else -1.0)

    move = hostcall.callback(moved, result=like, stateful=stateful)

    def program(x: tf.Tensor) -> Any:
        return move(x, tf.constant("up")) + move(x * 2.0, tf.constant("down"))

    found = jitted(program)(X).numpy()
    assert sum(row.calls for row in hostcall.stats() if "moved" in row.callback) == 2
    assert_same(found, plain(program)(X).numpy())


@pytest.mark.cpu("there are no regions on other devices")
def test_explain_says_how_strings_reach_the_function() -> None:
    explanation = hostcall.explain(jitted(lambda x: a_constant(tf.numpy_function, x)), X)
    [op] = explanation.script_ops
    assert op.route == "custom_call"
    assert "TensorFlow's own kernel" in op.reason
    assert not explanation.boundaries
