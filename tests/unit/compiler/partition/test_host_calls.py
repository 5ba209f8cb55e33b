"""hostcall._compiler.partition: script ops on the host, between compiled clusters."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.partition import host_calls
from hostcall._tf import attributes, token_registry
from hostcall_runtime import _errors
from tests.support.helpers import failure, jitted, plain, raising, stateless_py_func

X = tf.constant([1.0, 2.0])


pytestmark = pytest.mark.usefixtures("partition_route")


def failing(error: BaseException) -> Any:
    return jitted(lambda x: tf.numpy_function(raising(error), [x], tf.float32) + 1.0)


ERRORS = [
    (ValueError("blah"), tf.errors.InvalidArgumentError),
    (TypeError("blah"), tf.errors.InvalidArgumentError),
    (KeyError("blah"), tf.errors.UnknownError),
    (StopIteration("blah"), tf.errors.OutOfRangeError),
    (MemoryError("blah"), tf.errors.ResourceExhaustedError),
    (NotImplementedError("blah"), tf.errors.UnimplementedError),
    (_errors.DeadlineExceededError("blah"), tf.errors.DeadlineExceededError),
    (_errors.ResultError("blah", _errors.INTERNAL), tf.errors.InternalError),
    (hostcall.LoweringError("blah"), tf.errors.InvalidArgumentError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_exception_comes_back_with_its_status_and_once(error: Any, kind: Any) -> None:
    raised = failure(failing(error), X)
    assert type(raised) is kind
    assert raised.message.startswith(("blah", f"{type(error).__name__}: "))
    assert raised.message.count("[hostcall error") <= 1
    assert "hostcall call" not in raised.message
    assert "__partitioned" not in raised.message


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_errors_come_back_by_a_dataset_too(error: Any, kind: Any) -> None:
    program = failing(error)
    data = tf.data.Dataset.from_tensors(X).map(lambda x: program(x))
    if kind is tf.errors.OutOfRangeError:
        kind = tf.errors.InvalidArgumentError  # of tf.data's, for which it means the end
    raised = failure(list, data)
    assert type(raised) is kind
    assert "blah" in raised.message
    assert "hostcall call" not in raised.message


def test_an_error_inside_the_text_of_another() -> None:
    inner = str(host_calls.carrier_of(ValueError("inner")))
    raised = failure(failing(RuntimeError(f"{inner} and {inner}")), X)
    assert type(raised) is tf.errors.UnknownError
    assert raised.message.startswith("RuntimeError: ")
    assert raised.message.count("inner") >= 2


@pytest.mark.parametrize(
    "text",
    ["[hostcall call 1, status 3] without an end", "[hostcall call x]", "[hostcall call ", ""],
)
def test_texts_that_look_like_ours(text: str) -> None:
    raised = failure(failing(RuntimeError(text)), X)
    assert type(raised) is tf.errors.UnknownError
    assert f"RuntimeError: {text}" in raised.message or not text


def test_texts_that_utf_8_or_c_cannot_hold() -> None:
    raised = failure(failing(ValueError("a\0b\udcff")), X)
    assert type(raised) is tf.errors.InvalidArgumentError
    assert "a\\x00b\\udcff" in raised.message


def test_a_run_of_a_session_fails_with_the_same_error() -> None:
    def fail(x: Any) -> Any:
        raise _errors.DeadlineExceededError("blah")

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = jitted(lambda: tf.numpy_function(fail, [tf.zeros([2])], tf.float32))()
        error = failure(session.run, result)
    assert type(error) is tf.errors.DeadlineExceededError
    assert "DeadlineExceededError: blah" in error.message
    assert isinstance(hostcall.last_error(error), _errors.DeadlineExceededError)


def test_plain_graphs_keep_the_status_and_the_text_of_tensorflow() -> None:
    def fail(x: Any) -> Any:
        raise _errors.DeadlineExceededError("blah")

    program = plain(lambda x: tf.numpy_function(fail, [x], tf.float32))
    assert type(failure(program, X)) is tf.errors.UnknownError
    assert "script_ops.py" in failure(program, X).message


def test_stateless_calls_of_constants_run_in_each_call() -> None:
    calls = []

    @jitted
    def program() -> tf.Tensor:
        def count(x: Any) -> Any:
            calls.append(x)
            return x + np.float32(len(calls))

        stateless_py_func(count, [tf.constant(0.0)], tf.float32)  # nobody uses it
        return stateless_py_func(count, [tf.constant(10.0)], tf.float32)

    assert [program().numpy() for _ in range(3)] == [11.0, 12.0, 13.0]
    assert calls == [10.0] * 3


def test_a_rule_is_asked_for_the_shapes_that_there_are() -> None:
    half = hostcall.declare(lambda x: x[:3], result=lambda x: [x.shape[0] // 2])
    program = tf.function(
        lambda x: tf.numpy_function(half, [x], tf.float32),
        input_signature=[tf.TensorSpec([None], tf.float32)],
        jit_compile=True,
    )
    for size in (6, 7):
        assert program(tf.zeros([size])).shape == [3]
    error = failure(program, tf.zeros([9]))
    assert "has shape (3,), but its declared shape is (4,)" in error.message
    assert error.message.startswith("0-th value returned by pyfunc_")


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function])
def test_entries_die_with_the_spec(op: Any) -> None:
    def same(x: Any) -> Any:
        return x

    program = jitted(lambda x: op(same, [x], tf.float32))
    program(X)
    nodes = program.get_concrete_function(X).function_def.node_def
    (token,) = (node.attr["token"].s.decode() for node in nodes if "token" in node.attr)
    entry = weakref.ref(token_registry.functions.get(f"{token}/host"))
    assert entry() is not None
    del program
    gc.collect()
    assert entry() is None


def test_script_ops_in_clusters_keep_their_tokens() -> None:
    concrete = plain(lambda x: tf.numpy_function(lambda x: x, [x], tf.float32))
    function = concrete.get_concrete_function(X).function_def
    cluster = type(function)()
    cluster.CopyFrom(function)
    cluster.attr[attributes.CLUSTER].b = True
    host_calls.redirect([function, cluster])
    (host,), (inside,) = (
        [node.attr["token"].s for node in f.node_def if node.op == "PyFunc"]
        for f in (function, cluster)
    )
    assert host == inside + b"/host"


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_integers_of_four_bits_cross_from_cluster_to_cluster(name: str) -> None:
    dtype = tf.as_dtype(name)
    values = np.arange(16, dtype=np.int8) - (8 if name == "int4" else 0)

    @jitted
    def program(x: tf.Tensor) -> Any:
        narrow = tf.reverse(x, [0])
        y = tf.py_function(lambda v: v, [tf.cast(narrow, dtype)], dtype)
        z = tf.numpy_function(lambda v: v[1:], [tf.transpose(y)], dtype)
        return tf.cast(z, tf.int8) * tf.constant(2, tf.int8), y

    doubled, same = program(tf.constant(values))
    np.testing.assert_array_equal(doubled, 2 * values[::-1][1:])
    np.testing.assert_array_equal(same.numpy().astype(np.int8), values[::-1])
