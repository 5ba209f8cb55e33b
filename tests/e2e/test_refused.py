"""Functions that XLA refuses are partitioned around what it refuses, by `import hostcall` alone."""

import functools
import logging
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler import refusals
from tests.support.e2e.refused_programs import PROGRAMS, X
from tests.support.helpers import (
    CALLERS,
    assert_as_plain,
    assert_as_plain_called_by,
    assert_same,
    assert_says,
    each_caller,
    failure,
    gradient_of,
    jitted,
    plain,
    to_numpy,
)
from tests.support.versions import is_older_than, shuffle_is_refused

# Each has another reason.
REFUSED = {
    "without_a_kernel": "Detected unsupported operations.*UniqueWithCounts",
    "a_range_of_unknown_length": "must be a compile-time constant",
    "a_growing_array": "would not let the list grow",
}

INVALID = tf.errors.InvalidArgumentError
each_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@each_program
def test_it_computes_what_plain_graph_mode_does(program: Any) -> None:
    function, expected = jitted(program), plain(program)
    for x in (X, X + 1.0, X):
        assert_same(to_numpy(function(x)), to_numpy(expected(x)))


@each_program
def test_beside_a_callback_of_known_shape(program: Any) -> None:
    def beside(x: tf.Tensor) -> Any:
        doubled = tf.numpy_function(lambda v: v * np.float32(2), [x], tf.float32)
        doubled.set_shape(x.shape)
        return program(doubled), doubled + 1.0

    assert_as_plain(beside, X)


@each_caller
@pytest.mark.parametrize(
    "name", [*REFUSED, "a_string_returned", "in_a_loop", "a_variable_that_is_assigned"]
)
def test_called_by(name: str, caller: Any) -> None:
    if name == "a_variable_that_is_assigned" and caller is CALLERS["a session"]:
        pytest.skip("its variable belongs to eager execution")
    assert_as_plain_called_by(caller, PROGRAMS[name], X)


@pytest.mark.parametrize("where", ["condition", "body", "branch of the body"])
@pytest.mark.parametrize("calls", [False, True])
def test_a_loop_with_a_table_that_nothing_needs(where: str, calls: bool) -> None:
    """Stock TensorFlow ends the process."""
    keys, values = tf.constant([1, 2], tf.int64), tf.constant([10.0, 20.0])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1.0)

    def look_up(i: tf.Tensor) -> tf.Tensor:
        return table.lookup(tf.cast(i, tf.int64)[None])

    def goes_on(i: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        if where == "condition":
            look_up(i)
        return i < 3

    def step(i: tf.Tensor, x: tf.Tensor) -> Any:
        if where == "body":
            look_up(i)
        if where == "branch of the body":
            tf.cond(i > 1, lambda: look_up(i), lambda: x[:1])
        if calls:
            x = tf.numpy_function(np.square, [x], tf.TensorSpec([3], tf.float32))
        return i + 1, x * 2.0

    def program(x: tf.Tensor) -> Any:
        return tf.while_loop(goes_on, step, [tf.constant(0), x])

    assert_as_plain(program, tf.constant([1.0, 2.0, 3.0]))


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@pytest.mark.parametrize("order", [1, 2])
def test_a_tape_around_a_compiled_loop_and_branch(order: int) -> None:
    """Its lists cross from the forward program to the backward program."""

    def cube(x: tf.Tensor) -> tf.Tensor:
        y = tf.ones_like(x)
        for _ in tf.range(3):
            y = y * x
        return y if x[0] > 0.0 else -y

    derived = jitted(cube)
    for _ in range(order):
        derived = functools.partial(gradient_of, derived)
    for x in (X, -X):
        expected = 3 * x.numpy() ** 2 if order == 1 else 6 * x.numpy()
        np.testing.assert_allclose(derived(x), np.sign(x[0]) * expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        # It holds XLA's words for another function.
        (ValueError("tf2xla conversion failed while converting __inference_other_1[x]"), INVALID),
        (tf.errors.FailedPreconditionError(None, None, "no such luck"), tf.errors.UnknownError),
    ],
)
def test_an_error_of_a_callback_is_no_refusal(raised: Any, error: Any) -> None:
    """Check that calls which have run before the error are not run again."""
    calls = []

    def fail(value: Any) -> Any:
        calls.append(value)
        raise raised

    with pytest.raises(error, match=r"conversion failed|no such luck"):
        jitted(lambda x: tf.numpy_function(fail, [x], tf.TensorSpec([4], tf.float32)))(X)
    assert len(calls) == 1


def test_arguments_that_no_kernel_takes_are_an_error_and_no_decision() -> None:
    """XLA drops the assertion: one program goes on, where a partitioned function would check it."""

    @tf.function(
        jit_compile=True, input_signature=[tf.TensorSpec([None]), tf.TensorSpec([], tf.int32)]
    )
    def program(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_negative(x)
        return tf.reshape(x, [n, 2]) * 2.0

    with pytest.raises(INVALID):
        program(X, 3)
    assert_same(program(X, 2).numpy(), X.numpy().reshape(2, 2) * 2)


@pytest.mark.usefixtures("stock_errors")
@pytest.mark.parametrize("name", REFUSED)
def test_uncompilable_as_an_error(name: str) -> None:
    with pytest.raises(INVALID, match=f"(?s){REFUSED[name]}"):
        jitted(PROGRAMS[name])(X)


@pytest.mark.usefixtures("stock_errors")
def test_arguments_and_what_xla_does_not_name_as_errors() -> None:
    with pytest.raises(INVALID, match="is of dtype string"):
        jitted(tf.strings.length)(tf.constant("text"))
    if is_older_than("2.22"):
        assert type(failure(jitted(UNNAMED["alone"]), SMALL_X)) is tf.errors.FailedPreconditionError


@pytest.mark.parametrize("name", REFUSED)
def test_with_the_route_of_custom_calls_nothing_is_partitioned(name: str) -> None:
    with hostcall.scope(route="custom_call"), pytest.raises(INVALID):
        jitted(PROGRAMS[name])(X)


def test_configure_refuses_other_values() -> None:
    with pytest.raises(ValueError, match="'no' is not one of"):
        hostcall.configure(uncompilable="no")


def test_the_log_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    @jitted
    def my_program(x: tf.Tensor) -> Any:
        return tf.unique_with_counts(x * 2.0)[0] + 1.0

    with caplog.at_level(logging.WARNING, "hostcall"):
        for size in (4, 4, 3):
            my_program(X[:size])
    (line,) = (text for text in caplog.messages if "my_program" in text)
    assert_says(line, "UniqueWithCounts", "test_refused.py:", "uncompilable='error'")


@pytest.mark.usefixtures("every_cluster")
def test_the_log_names_a_loop_that_is_alone_on_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def growing(x: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda i, _: i < 2,
            lambda i, y: (i + 1, tf.concat([y, y], 0)),
            [0, x],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )[1]

    with caplog.at_level(logging.WARNING, "hostcall"):
        assert_as_plain(growing, X)
    (line,) = (text for text in caplog.messages if "growing" in text)
    assert "On the host: While; the rest" in line or "On the host: StatelessWhile; the" in line


# TensorFlow prints no messages when a function with ops that XLA has no kernels for is compiled.

_SCRIPT = """
import sys, tempfile

import tensorflow as tf

import hostcall

writer = tf.summary.create_file_writer(tempfile.mkdtemp())
keys = tf.constant([1, 2], tf.int64)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [10.0, 20.0]), -1.0)

def printing(x):
    tf.print("x is", x, output_stream=sys.stdout)
    return x * 2.0

def looking_up(x):
    return table.lookup(tf.cast(x, tf.int64)) + 1.0

def texts(x):
    return tf.strings.to_number(tf.strings.as_string(x)) * 2.0

def summing_up(x):
    with writer.as_default():
        tf.summary.write("total", tf.reduce_sum(x), step=1)
    return x + 1.0

def eigenvalues(x):
    return tf.math.real(tf.linalg.eigvals(tf.linalg.diag(x)))

def in_a_branch(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: texts(x), lambda: x)

def in_a_branch_that_is_known(x):
    return tf.cond(tf.constant(True), lambda: x, lambda: texts(x))

def in_a_loop(x):
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, texts(y)), [0, x])[1]

def called(x):
    return tf.function(texts)(x) + 1.0

def beside_a_callback(x):
    y = tf.numpy_function(lambda v: v, [x], tf.TensorSpec([2], tf.float32))
    return printing(y)

def all_of(x):
    y = summing_up(looking_up(printing(x)))
    return texts(eigenvalues(y))

for program in (
    printing, looking_up, texts, summing_up, eigenvalues, in_a_branch, in_a_branch_that_is_known,
    in_a_loop, called, beside_a_callback, all_of,
):
    tf.function(program, jit_compile=True)(tf.constant([1.0, 2.0]))
"""


def test_the_terminal_shows_one_line_a_function() -> None:
    environment = {name: v for name, v in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", _SCRIPT]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert [line for line in lines if "OP_REQUIRES" in line or "Detected unsupported" in line] == []
    assert len([line for line in lines if line.startswith("hostcall: ")]) == 11


# Functions that XLA refuses with any code, and without naming the op that it refuses.

SMALL_X = tf.constant([3.0, 1.0, 2.0])


@pytest.fixture(autouse=True)
def _auto(auto_route: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_found", defaultdict(set))


def _shuffled(x: tf.Tensor) -> Any:
    return tf.random.shuffle(tf.sin(x) + 1.0) * 2.0


def _among_others(x: tf.Tensor) -> Any:
    for _ in range(5):
        x = tf.sin(x) + 1.0
    y = tf.random.shuffle(x)
    for _ in range(5):
        y = tf.cos(y) * 2.0
    return tf.sort(y), x


def _beside_a_list(x: tf.Tensor) -> Any:
    array = tf.TensorArray(tf.float32, 2, element_shape=[3])
    array = array.write(0, tf.sort(tf.random.shuffle(x))).write(1, x)
    return array.stack()


UNNAMED: dict[str, Callable[[tf.Tensor], Any]] = {
    "alone": lambda x: tf.sort(tf.random.shuffle(x)),
    "among_others": _among_others,
    "twice": lambda x: (tf.sort(_shuffled(x)), tf.sort(tf.random.shuffle(x * 2.0)) + 1.0),
    "in_a_loop": lambda x: (
        tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sort(_shuffled(y))), [0, x])[1]
        + 1.0
    ),
    "in_a_branch": lambda x: tf.cond(x[0] > 0.0, lambda: tf.sort(_shuffled(x)), lambda: x) + 1.0,
    "in_a_call": lambda x: tf.sort(tf.function(_shuffled)(x)) + 1.0,
    "beside_a_list": _beside_a_list,
    "beside_a_callback": lambda x: (
        tf.sort(_shuffled(tf.numpy_function(np.square, [x], tf.TensorSpec([3])))) + 1.0
    ),
    "beside_an_op_without_a_kernel": lambda x: (
        tf.sort(_shuffled(x)) + tf.strings.to_number(tf.strings.as_string(x))
    ),
}


@pytest.mark.parametrize("program", UNNAMED.values(), ids=UNNAMED)
def test_what_is_refused_without_a_name_computes_the_same(program: Any) -> None:
    function = jitted(program)
    for x in (SMALL_X, SMALL_X + 1.0):
        assert_same(to_numpy(function(x)), to_numpy(plain(program)(x)))


@shuffle_is_refused
@pytest.mark.parametrize("name", ["among_others", "in_a_loop", "in_a_branch", "in_a_call"])
def test_the_log_names_the_op(name: str, caplog: pytest.LogCaptureFixture) -> None:
    program = UNNAMED[name]

    def searched(x: tf.Tensor) -> Any:
        return program(x)

    searched.__name__ = f"searched_{name}"  # the log says it once for each
    with caplog.at_level(logging.WARNING, "hostcall"):
        jitted(searched)(SMALL_X)
    (line,) = (text for text in caplog.messages if "Expected comp" in text)
    assert "On the host: RandomShuffle; the rest" in line


@shuffle_is_refused
def test_what_was_found_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    jitted(lambda x: tf.sort(_shuffled(x)) + 1.0)(SMALL_X)

    @jitted
    def the_next(x: tf.Tensor) -> Any:
        return tf.sort(_shuffled(x)) + 2.0

    with caplog.at_level(logging.WARNING, "hostcall"):
        the_next(SMALL_X)
    (line,) = (text for text in caplog.messages if "the_next" in text)
    assert "On the host: RandomShuffle; the rest is one program" in line


def test_results_of_the_shape_of_strings_are_not_those_of_one_program() -> None:
    """A program has references in the place of strings, without their shapes."""

    def program(names: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.gather(weights, tf.strings.to_hash_bucket_fast(names, 4)) * 2.0

    function, names = jitted(program), tf.constant(["a", "b", "c"])
    assert hostcall.explain(function, names, tf.range(4.0)).functions[0].mode == "partitioned"
    assert_same(
        to_numpy(function(names, tf.range(4.0))), to_numpy(plain(program)(names, tf.range(4.0)))
    )
