"""Where partitioned functions may be: Keras, threads, replicas, SavedModels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.support.e2e import partition_children
from tests.support.helpers import assert_same, jitted, plain, to_numpy
from tests.support.stress.template import Template
from tests.support.threads import in_threads

X = tf.constant([3.0, 1.0, 2.0, 2.0])


def positive(x: tf.Tensor) -> tf.Tensor:
    """Of a size that only the values tell, and differentiable."""
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
    for one, other in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)


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
