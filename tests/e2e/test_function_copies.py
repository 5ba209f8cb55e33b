"""Compiled functions of which TensorFlow makes copies of its own, under the same name."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

Body = Callable[[tf.Tensor], tf.Tensor]
VALUES = [1.0, 2.0, 3.0]


def increased(x: Any) -> Any:
    return np.float32(x + 1)


def one_program(x: tf.Tensor) -> tf.Tensor:
    return 2.0 * tf.ensure_shape(tf.numpy_function(increased, [x], tf.float32), [])


BODIES: dict[str, Body] = {
    "one_program": one_program,
    "partitioned": lambda x: 2.0 * tf.numpy_function(increased, [x], tf.float32),
    "with_regions": lambda x: 2.0 * tf.strings.to_number(tf.strings.as_string(x)),
    "loop": lambda x: tf.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, one_program(y)), [tf.constant(0), x]
    )[1],
}


def compiled(body: Body, **how: Any) -> Any:
    return tf.function(body, jit_compile=True, autograph=False, **how)


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(VALUES)


USES: dict[str, Callable[[Body], tf.data.Dataset]] = {
    "map": lambda f: dataset().map(f),
    "map, then batch": lambda f: dataset().map(f).batch(2),
    "filter": lambda f: dataset().filter(lambda x: f(x) > 5.0),
    "interleave": lambda f: dataset().interleave(
        lambda x: tf.data.Dataset.from_tensors(f(x)).map(f), cycle_length=2, num_parallel_calls=2
    ),
}


def elements(data: tf.data.Dataset) -> list[float]:
    return np.concatenate([np.ravel(e) for e in data.as_numpy_iterator()]).tolist()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("body", BODIES)
def test_functions_in_datasets_are_called_directly_too(body: str, use: str) -> None:
    """A dataset optimizes its copy of a function, which differs from the function from then on."""
    program, x = BODIES[body], tf.constant(5.0)
    expected = elements(USES[use](program)), float(program(x))
    first, last = compiled(program), compiled(program)
    assert (elements(USES[use](first)), float(first(x))) == expected
    assert (float(last(x)), elements(USES[use](last)), float(last(x))) == (expected[1], *expected)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.filterwarnings("ignore:hostcall. a SavedModel is written")
def test_saved_models_that_are_loaded_twice(body: str, tmp_path: pathlib.Path) -> None:
    module = tf.Module()
    module.run = compiled(BODIES[body], input_signature=[tf.TensorSpec([], tf.float32)])
    expected = elements(dataset().map(BODIES[body]))
    tf.saved_model.save(module, str(tmp_path))
    for loaded in [tf.saved_model.load(str(tmp_path)) for _ in range(2)]:
        for _ in range(2):
            assert elements(dataset().map(loaded.run)) == expected
            assert [float(loaded.run(tf.constant(value))) for value in VALUES] == expected


@pytest.mark.parametrize("body", BODIES)
def test_graphs_that_are_imported_twice(body: str) -> None:
    """Into one graph and into two, each of which has a session with a copy of the function."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as original:
        x = v1.placeholder(tf.float32, [], name="x")
        tf.identity(compiled(BODIES[body])(x), name="y")
    expected, graph = float(BODIES[body](tf.constant(2.0))), original.as_graph_def()
    for _ in range(2):
        with tf.Graph().as_default(), v1.Session() as session:
            fed = {"x:0": tf.constant(2.0)}
            results = [tf.graph_util.import_graph_def(graph, fed, ["y:0"]) for _ in range(2)]
            assert session.run(results) == [[expected], [expected]]
