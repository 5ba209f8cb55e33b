"""Tests of the places and callers of partitioned functions, and of lists that grow in them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e import partition_children
from tests.support.helpers import (
    assert_close,
    assert_same,
    gradient_of,
    jitted,
    plain,
    stateless_py_func,
    to_numpy,
)
from tests.support.stress.template import Template
from tests.support.threads import in_threads

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def positive(x: tf.Tensor) -> tf.Tensor:
    """Return the positive elements: a differentiable vector whose size depends on the values."""
    return tf.py_function(lambda v: v[v > 0.0], [x], tf.float32)


class Clipped(keras.layers.Layer):
    """Adds the mean of what is positive, which a callback finds."""

    def call(self, inputs: Any) -> Any:
        return inputs + tf.reduce_sum(positive(inputs)) / 100.0


def trained(jit_compile: bool) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(8), Clipped(), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=jit_compile)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    history = model.fit(x, x[:, :1], epochs=3, batch_size=8, verbose=0, shuffle=False)
    return [*history.history["loss"], *model.get_weights(), model.predict(x, verbose=0)]


def test_keras_fit() -> None:
    assert_close(trained(True), trained(False), rtol=2e-4, atol=1e-6)


def test_threads_that_share_a_function() -> None:
    def program(x: tf.Tensor) -> Any:
        y = tf.numpy_function(np.unique, [x * 2.0], tf.float32)
        return y + 1.0, tf.reduce_sum(y)

    function = jitted(program)

    def work(number: int) -> None:
        for i in range(10):
            x = np.arange(4 + (number + i) % 3, dtype=np.float32) // 2.0 + np.float32(number)
            y = np.unique(x * np.float32(2.0))
            assert_same(to_numpy(function(x)), (y + np.float32(1.0), y.sum(dtype=np.float32)))

    in_threads(8, work)


def test_callbacks_that_run_functions_do_not_wait_for_one_another() -> None:
    """More calls at once than TensorFlow has threads, each of which runs a graph itself."""
    inner = plain(lambda x: x * 2.0)
    partitioned = jitted(
        lambda x: tf.numpy_function(lambda v: inner(v).numpy(), [x], tf.float32) + 1.0
    )
    function = plain(lambda x: partitioned(x))

    def work(number: int) -> None:
        for _ in range(5):
            np.testing.assert_array_equal(function(X + float(number)), 2.0 * (X + number) + 1.0)

    in_threads(16, work)


def test_a_saved_model(tmp_path: Path) -> None:
    module = tf.Module()
    module.v = tf.Variable(2.0)
    module.run = tf.function(
        lambda x: tf.numpy_function(np.unique, [x * module.v], tf.float32) + 1.0,
        jit_compile=True,
        input_signature=[tf.TensorSpec([None], tf.float32)],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for x in (X, X[:2], X):
        assert_same(to_numpy(loaded.run(x)), to_numpy(module.run(x)))
        assert_same(to_numpy(plain(lambda x: loaded.run(x))(x)), to_numpy(module.run(x)))
    loaded.v.assign(3.0)
    np.testing.assert_array_equal(loaded.run(X), np.unique(X * 3.0) + 1.0)


def run_child(fresh_python: Template, child: Any, **variables: str) -> None:
    code = (
        f"from tests.support.e2e import partition_children; partition_children.{child.__name__}()"
    )
    fresh_python.run_program(code, **variables).assert_well()


def test_under_a_mirrored_strategy(fresh_python: Template) -> None:
    run_child(fresh_python, partition_children.run_replicas)


def compiled_modules(folder: Path) -> list[str]:
    """The names of the XLA programs that were compiled, one for each compilation."""
    found = {re.match(r"module_(\d+)\.(.*?)\.", file.name) for file in folder.iterdir()}
    return sorted(match[2] for match in {(m[1], m[2]): m for m in found if m}.values())


def compile_counts(fresh_python: Template, child: Any, folder: Path) -> dict[str, int]:
    run_child(fresh_python, child, XLA_FLAGS=f"--xla_dump_to={folder}")
    counts: dict[str, int] = {}
    for name in compiled_modules(folder):
        cluster = re.search(r"cluster_\d+", name)
        assert cluster, name
        counts[cluster[0]] = counts.get(cluster[0], 0) + 1
    return counts


def test_clusters_are_compiled_once_for_each_shape(fresh_python: Template, tmp_path: Path) -> None:
    """Inputs of shapes 4, 4, 6, 4, and results of 3, 3, 4, 3 elements; other values each time."""
    counts = compile_counts(fresh_python, partition_children.run_shapes, tmp_path)
    assert counts == {"cluster_0": 2, "cluster_1": 2}


def test_loops_without_host_ops_are_compiled_whole(fresh_python: Template, tmp_path: Path) -> None:
    counts = compile_counts(fresh_python, partition_children.run_loop, tmp_path)
    assert counts == {"cluster_0": 1, "cluster_1": 1}
    programs = [file.read_text() for file in tmp_path.glob("*before_optimizations.txt")]
    assert sum(" while(" in program for program in programs) == 2


def test_independent_chains_share_clusters(fresh_python: Template, tmp_path: Path) -> None:
    counts = compile_counts(fresh_python, partition_children.run_chains, tmp_path)
    assert counts == {"cluster_0": 1, "cluster_1": 1, "cluster_2": 1}


# TensorArrays that grow in partitioned functions: in XLA's programs they silently do not.

PAIR = tf.constant([1.0, 2.0])


def _half(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda v: v / 2, [x], tf.float32), x.shape)


def _array(size: int = 0) -> Any:
    return tf.TensorArray(tf.float32, size, dynamic_size=True, clear_after_read=False)


def one_by_one(x: tf.Tensor) -> Any:
    array = _array(1).write(0, x).write(2, _half(x)).write(1, x + 1.0)
    return array.stack(), array.size()


def in_a_loop_without_calls(x: tf.Tensor) -> Any:
    y = _half(x)
    _, array = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, array: (i + 1, array.write(i, y * tf.cast(i, tf.float32))),
        [tf.constant(0), _array()],
    )
    return array.stack(), array.size()


def in_a_loop_with_calls(x: tf.Tensor) -> Any:
    def body(i: tf.Tensor, array: Any, y: tf.Tensor) -> Any:
        y = _half(y) + 1.0
        return i + 1, array.write(i, y), y

    _, array, y = tf.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), _array(), x])
    return array.stack(), array.size(), y


def in_a_function(x: tf.Tensor) -> Any:
    @tf.function
    def grow(y: tf.Tensor) -> Any:
        return _array().write(1, y).write(0, y * 2.0).stack()

    return grow(x) + grow(_half(x))


def scattered(x: tf.Tensor) -> Any:
    array = _array().scatter([0, 2], tf.stack([x, _half(x)])).write(3, x)
    return array.gather([2, 0, 3]), array.size()


def its_gradient(x: tf.Tensor) -> Any:
    def total(x: tf.Tensor) -> tf.Tensor:
        half = tf.py_function(lambda v: v / 2.0, [x], tf.float32)
        half.set_shape([2])
        return tf.reduce_sum(_array().write(0, x).write(1, half * x).stack() ** 2)

    return gradient_of(total, x)


PROGRAMS = [
    one_by_one,
    in_a_loop_without_calls,
    in_a_loop_with_calls,
    in_a_function,
    scattered,
    its_gradient,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_arrays_grow_as_in_plain_graphs(program: Callable[..., Any]) -> None:
    expected = to_numpy(tf.function(program)(PAIR))
    with hostcall.scope(route="partition"):
        actual = to_numpy(tf.function(program, jit_compile=True)(PAIR))
    assert_same(actual, expected)


def test_explain_says_that_a_list_that_grows_is_on_the_host() -> None:
    with hostcall.scope(route="partition"):
        program = tf.function(in_a_loop_without_calls, jit_compile=True)
        explained = str(hostcall.explain(program, PAIR))
    assert "XLA would not let the list grow" in explained


def test_a_list_of_known_size_is_compiled() -> None:
    def program(x: tf.Tensor) -> Any:
        array = tf.TensorArray(tf.float32, 2).write(0, _half(x)).write(1, x)
        return tf.sin(array.stack())

    with hostcall.scope(route="partition"):
        jitted = tf.function(program, jit_compile=True)
        explained = str(hostcall.explain(jitted, PAIR))
    assert "2 TensorListSetItem, TensorListStack, Sin" in explained  # the ops of one cluster
    np.testing.assert_allclose(jitted(PAIR), np.sin([[0.5, 1.0], [1.0, 2.0]]), rtol=1e-6)


# Partitioned functions that TensorFlow itself calls: datasets, iterators, sessions, servers.

v1 = tf.compat.v1


def _negative(value: Any) -> Any:
    return -value


def _op(x: tf.Tensor, op: Any = tf.numpy_function) -> tf.Tensor:
    return tf.ensure_shape(op(_negative, [x], tf.float32), x.shape)


def nested(x: tf.Tensor) -> tf.Tensor:
    """Callbacks one after the other: in a function, in a loop and in what it calls."""
    inner = tf.function(lambda x: _op(tf.sin(x)))

    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, _op(inner(y))

    return tf.cos(tf.while_loop(lambda i, y: i < 2, body, [tf.constant(0), inner(_op(x))])[1])


def side_by_side(x: tf.Tensor) -> tf.Tensor:
    """Callbacks that may overlap, so that the function does not run on one thread."""
    return _op(tf.sin(x)) + _op(tf.cos(x), stateless_py_func) + _op(x, stateless_py_func)


def _dataset(function: Callable[..., Any]) -> Any:
    return tf.data.Dataset.range(4).map(lambda i: function(tf.cast(i, tf.float32)))


def _by_iterator(function: Callable[..., Any], make: Callable[..., Any], **config: Any) -> Any:
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(**config)) as session:
        iterator = make(_dataset(function))
        value = iterator.get_next()
        if iterator.initializer is not None:
            session.run(iterator.initializer)
        return [session.run(value) for _ in range(2)]


def _shared(dataset: Any) -> Any:
    return v1.data.make_initializable_iterator(dataset, shared_name="shared")


def _multi_device(dataset: Any) -> Any:
    from tensorflow.python.data.ops import multi_device_iterator_ops as ops  # no public name

    return ops.MultiDeviceIterator(dataset, ["/cpu:0", "/cpu:1"])


def _by_two_sessions(function: Callable[..., Any]) -> Any:
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default():
        iterator = _shared(_dataset(function))
        value = iterator.get_next()
        with v1.Session(server.target) as one, v1.Session(server.target) as other:
            one.run(iterator.initializer)
            return [one.run(value), other.run(value)]


def _windows(function: Callable[..., Any]) -> Any:
    def key(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(function(x) > 0.0, tf.int64)

    numbers = tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))
    return [*numbers.group_by_window(key, lambda _, rows: rows.batch(4), window_size=4)]


def _numbers() -> Any:
    return tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32))


def _tensors(value: tf.Tensor) -> Any:
    return tf.data.Dataset.from_tensors(value)


CALLERS: dict[str, Callable[[Any], Any]] = {
    "an iterator that is shared": lambda f: _by_iterator(f, _shared),
    "an iterator that starts by itself": lambda f: _by_iterator(
        f, lambda dataset: v1.data.make_initializable_iterator(dataset)
    ),
    "an iterator for several devices": lambda f: _by_iterator(
        f, _multi_device, device_count={"CPU": 2}
    ),
    "two sessions of a server": _by_two_sessions,
    "map": lambda f: [*_numbers().map(f)],
    "parallel map": lambda f: [*_numbers().map(f, num_parallel_calls=4)],
    "filter": lambda f: [*_numbers().filter(lambda x: tf.abs(f(x)) > 0.64)],
    "scan": lambda f: [*_numbers().scan(0.0, lambda state, x: (state + f(x), state * f(x)))],
    "reduce": lambda f: [_numbers().reduce(0.0, lambda state, x: state + f(x))],
    "flat_map": lambda f: [*_numbers().flat_map(lambda x: _tensors(f(x)))],
    "interleave": lambda f: [
        *_numbers().interleave(lambda x: _tensors(f(x)), num_parallel_calls=2)
    ],
    "group_by_window": _windows,
    "from_generator": lambda f: [
        *tf.data.Dataset.from_generator(
            lambda: iter([f(tf.constant(2.0))]), output_signature=tf.TensorSpec([], tf.float32)
        )
    ],
    "a py_function": lambda f: [
        tf.function(lambda x: tf.py_function(f, [x], tf.float32))(tf.constant(2.0))
    ],
    "map_fn": lambda f: [tf.function(lambda x: tf.map_fn(f, x))(tf.constant([1.0, 2.0]))],
}


@pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
@pytest.mark.parametrize("program", [nested, side_by_side])
@pytest.mark.parametrize("caller", CALLERS)
def test_partitioned_functions_called_by(caller: str, program: Callable[..., Any]) -> None:
    with hostcall.scope(route="partition"):
        plain, jitted = (
            to_numpy(CALLERS[caller](tf.function(program, jit_compile=jit_compile)))
            for jit_compile in (False, True)
        )
    assert len(plain) == len(jitted) > 0
    assert_close(jitted, plain)
