"""Graph mode's errors in compiled programs: gradients, Keras, datasets, sessions, saved models."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    assert_alike,
    assert_same,
    failure,
    gradient_of,
    jitted,
    plain,
    touch,
    value_and_gradient,
)

pytestmark = pytest.mark.cpu("programs for accelerators have no errors of values")

INVALID = tf.errors.InvalidArgumentError
X = tf.constant([1.0, 2.0, 3.0])
GOOD, BAD = tf.constant(1), tf.constant(7)


@pytest.fixture
def xla_semantics() -> Iterator[None]:
    hostcall.configure(semantics="xla")
    yield
    hostcall.configure(semantics="graph")


def taken(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    touch()
    return tf.gather(x * 1.0, i) ** 2.0


def looped(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    touch()
    total = tf.constant(0.0)
    for k in tf.range(3):
        total += x[i + 1 - k] ** 2.0
    return total


@tf.custom_gradient
def raising_backwards(x: tf.Tensor, i: tf.Tensor) -> Any:
    return x * 2.0, lambda dy: (dy * tf.gather([1.0, 2.0, 3.0], i), None)


def backwards_alone(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    touch()
    return tf.reduce_sum(raising_backwards(x, i))


def backwards_in_a_loop(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    touch()
    for k in tf.range(2):
        x = raising_backwards(x, i - k)
    return tf.reduce_sum(x)


each_program = pytest.mark.parametrize(
    "program", [taken, looped, backwards_alone, backwards_in_a_loop], ids=lambda one: one.__name__
)


@each_program
def test_a_tape_inside(program: Callable[..., Any]) -> None:
    def inside(x: tf.Tensor, i: tf.Tensor) -> Any:
        return value_and_gradient(lambda x: tf.autograph.to_graph(program)(x, i), x)

    function, expected = jitted(inside), plain(inside)
    for _ in range(2):
        assert_alike(function(X, GOOD), expected(X, GOOD))
        assert type(failure(function, X, BAD)) is type(failure(expected, X, BAD))


@each_program
def test_a_tape_outside(program: Callable[..., Any]) -> None:
    function, expected = jitted(program), plain(program)

    def outside(function: Any, i: tf.Tensor) -> Any:
        return value_and_gradient(lambda x: function(x, i), X)

    for _ in range(2):
        assert_alike(outside(function, GOOD), outside(expected, GOOD))
        assert type(failure(outside, function, BAD)) is type(failure(outside, expected, BAD))


def test_a_gradient_raises_for_what_it_alone_computes() -> None:
    function = jitted(backwards_alone)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = function(X, BAD)
    assert y == 12.0
    assert type(failure(tape.gradient, y, X)) is INVALID


def test_second_gradients_raise() -> None:
    function = jitted(taken)

    def second(i: tf.Tensor) -> Any:
        return gradient_of(lambda x: gradient_of(lambda y: function(y, i), x), X)

    assert second(GOOD).numpy().tolist() == [0.0, 2.0, 0.0]
    assert type(failure(second, BAD)) is INVALID


def looked_up(labels: Any, outputs: Any) -> Any:
    weights = tf.gather([1.0, 2.0, 3.0], tf.cast(labels, tf.int32))
    touch()
    return tf.reduce_mean(weights * outputs**2.0)


@pytest.mark.custom_call("the message is one of a compiled program")
def test_fit_with_a_loss_that_takes_rows_by_labels() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", looked_up, jit_compile=True)
    inputs, labels = np.ones((8, 2), np.float32), np.ones((8, 1), np.int32)
    model.fit(inputs, labels, batch_size=4, verbose=0)
    weights = model.get_weights()
    labels[5] = 7
    with pytest.raises(INVALID, match=r"test_graph_errors_uses.py:\d+"):
        model.fit(inputs, labels, batch_size=8, verbose=0)
    assert_same(model.get_weights(), weights)
    labels[5] = 2
    model.fit(inputs, labels, batch_size=8, verbose=0)


@pytest.mark.custom_call("the message is one of a compiled program")
def test_fit_with_labels_of_no_class() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)])
    noted: list[int] = []

    def loss(labels: Any, outputs: Any) -> Any:
        tf.numpy_function(lambda v: noted.append(len(v)), [labels], [])
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, outputs)

    model.compile("sgd", loss, jit_compile=True)
    inputs, labels = np.ones((4, 2), np.float32), np.array([[0], [1], [3], [2]], np.int32)
    with pytest.raises(INVALID, match="label"):
        model.fit(inputs, labels, verbose=0)
    assert noted == [4]


def test_a_dataset_maps_a_compiled_function() -> None:
    function = jitted(taken)
    indices = tf.data.Dataset.from_tensor_slices([1, 2, 5, 0])
    results = iter(indices.map(lambda i: function(X, i)))
    assert [float(next(results)) for _ in range(2)] == [4.0, 9.0]
    with pytest.raises(INVALID):
        next(results)
    assert float(next(results)) == 1.0


def test_a_session() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        i = tf.compat.v1.placeholder(tf.int32, [])
        y = jitted(taken)(tf.constant([1.0, 2.0, 3.0]), i)
        for _ in range(2):
            assert session.run(y, {i: 1}) == 4.0
            assert type(failure(session.run, y, {i: 7})) is INVALID


def test_a_saved_model(tmp_path: Path) -> None:
    module = tf.Module()
    module.run = tf.function(
        lambda x, i: (tf.gather(x, i) * 4.0, tf.strings.as_string(x)),
        input_signature=[tf.TensorSpec([3]), tf.TensorSpec([], tf.int32)],
        jit_compile=True,
    )
    module.run(X, GOOD)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path)).run
    for _ in range(2):
        assert loaded(X, GOOD)[0] == 8.0
        error = failure(loaded, X, BAD)
        assert type(error) is INVALID
        assert "GatherV2" in error.message


@pytest.mark.custom_call("TensorFlow's own kernels run the clusters")
@pytest.mark.usefixtures("xla_semantics")
def test_the_semantics_of_xla_have_no_errors() -> None:
    assert jitted(taken)(X, BAD) == 9.0
    program = jitted(tf.autograph.to_graph(looped))
    assert np.isfinite(program(X, BAD))


def test_functions_that_are_not_taken_have_no_errors() -> None:
    program = jitted(lambda x, i: tf.gather(x, i))
    assert np.isnan(program(X, BAD)) or program(X, BAD) == 3.0
    hostcall.configure(functions="all")
    try:
        assert type(failure(jitted(lambda x, i: tf.gather(x, i)), X, BAD)) is INVALID
    finally:
        hostcall.configure(functions="taken")


DEPRECATED: list[Any] = [
    ({"assertions": True}, {"assertions": False}),
    ({"dynamic_sizes": "checked"}, {"dynamic_sizes": "stock"}),
]


@pytest.mark.parametrize(("all_functions", "taken_alone"), DEPRECATED, ids=lambda one: str(*one))
def test_deprecated_settings_stand_for_the_functions(all_functions: Any, taken_alone: Any) -> None:
    def program() -> Any:
        return jitted(lambda x, i: tf.gather(x, i))

    try:
        with pytest.warns(DeprecationWarning, match=r"functions='all'"):
            hostcall.configure(**all_functions)
        assert type(failure(program(), X, BAD)) is INVALID
        with pytest.warns(DeprecationWarning, match=r"functions='all'"):
            hostcall.configure(**taken_alone)
        program()(X, BAD)
    finally:
        hostcall.configure(functions="taken")


@pytest.mark.parametrize("name", ["semantics", "functions", "random_numbers", "dynamic_sizes"])
def test_a_setting_that_is_none(name: str) -> None:
    settings: Any = {"route": "auto", name: "other"}
    with pytest.raises(ValueError, match=f"{name}='other' is not one of"):
        hostcall.configure(**settings)


@pytest.mark.parametrize(
    ("variable", "value", "raises"),
    [
        ("HOSTCALL_FUNCTIONS", "all", [True, True]),
        ("HOSTCALL_FUNCTIONS", "taken", [False, True]),
        ("HOSTCALL_SEMANTICS", "xla", [False, False]),
        ("HOSTCALL_ASSERTIONS", "1", [True, True]),
        ("HOSTCALL_ASSERTIONS", "0", [False, True]),
        ("HOSTCALL_DYNAMIC_SIZES", "checked", [True, True]),
    ],
)
def test_environment_variables(run_python: Any, variable: str, value: str, raises: Any) -> None:
    script = """
import tensorflow as tf, hostcall

def raises(program):
    try:
        tf.function(program, jit_compile=True)(tf.constant([1.0, 2.0]), tf.constant(7))
    except tf.errors.InvalidArgumentError:
        return True
    return False

def beside(x, i):
    tf.numpy_function(lambda: None, [], [])
    return tf.gather(x, i)

print([raises(lambda x, i: tf.gather(x, i)), raises(beside)])
"""
    assert run_python(script, **{variable: value, "HOSTCALL_ROUTE": "auto"}) == f"{raises}\n"


def test_a_variable_of_the_environment_that_is_none(run_python: Any) -> None:
    script = """
try:
    import hostcall
except ValueError as error:
    print(error)
"""
    said = run_python(script, HOSTCALL_SEMANTICS="other")
    assert said == "hostcall: HOSTCALL_SEMANTICS='other' is not one of 'graph', 'xla'.\n"
