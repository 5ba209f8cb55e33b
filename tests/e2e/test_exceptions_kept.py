"""Tests of errors of callbacks: how long they are kept, nested calls, and the lines they name."""

import gc
import os
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import (
    DetailedError,
    assert_says,
    each_mode,
    each_op,
    failure,
    jitted,
    like,
    on_two,
    plain,
    raising,
)
from tests.support.places import here, raise_below_zero

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([], tf.float32)


class Local:
    """An object in a local variable of a callback, or a generator's own."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, *elements: Any) -> None:
        self.elements = elements
        Local.alive.add(self)

    def __call__(self) -> Any:
        yield from self.elements


@pytest.fixture(autouse=True)
def _none_alive() -> None:
    Local.alive = weakref.WeakSet()


def ending(_: Any) -> np.float32:
    local = Local()
    return next(iter([] if local else [np.float32(1)]))


def failing(_: Any) -> Any:
    local = Local()
    raise ValueError("blah" if local else "")


def generated(*elements: Any, spec: Any = SPEC) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(Local(*elements), output_signature=spec)


DATASETS: dict[str, Callable[[], tf.data.Dataset]] = {
    "from_generator": lambda: generated(1.0, 2.0),
    # They go through a py_function.
    "from_generator of ragged tensors": lambda: generated(
        tf.ragged.constant([[1.0]]), spec=tf.RaggedTensorSpec([None, None], tf.float32)
    ),
    "interleave": lambda: tf.data.Dataset.range(3).interleave(lambda _: generated(1.0, 2.0), 2),
}


@pytest.mark.parametrize("name", DATASETS)
def test_nothing_is_kept_of_an_iteration_that_has_ended(name: str) -> None:
    earlier = hostcall.last_error()
    dataset = DATASETS[name]()
    for _ in dataset:
        pass
    del dataset
    gc.collect()
    assert not Local.alive
    assert hostcall.last_error() is earlier


@each_mode
@each_op
def test_an_exception_is_kept_as_long_as_the_error_that_tells_of_it(mode: Any, op: Any) -> None:
    run = mode(on_two(op, failing))
    earlier = hostcall.last_error()  # of errors that were reported to no caller
    errors = [failure(run, X) for _ in range(20)]
    gc.collect()
    assert len(Local.alive) == 20
    for error in errors:
        assert str(hostcall.last_error(error)) == "blah"
    del error
    errors.pop()
    gc.collect()
    assert len(Local.alive) == 19
    assert hostcall.last_error() is hostcall.last_error(errors[-1])
    errors.clear()
    gc.collect()
    assert not Local.alive
    assert hostcall.last_error() is earlier


@each_op
def test_the_error_of_an_eager_call_and_of_a_dataset_keep_theirs(op: Any) -> None:
    dataset = tf.data.Dataset.from_tensors(X).map(lambda x: op(failing, [x], tf.float32))
    error = failure(list, dataset)
    assert str(hostcall.last_error(error)) == "blah"
    del error, dataset
    gc.collect()
    assert not Local.alive


@each_mode
@each_op
def test_a_stop_iteration_is_told_and_kept(mode: Any, op: Any) -> None:
    error = failure(mode(on_two(op, ending)), X)
    assert type(error) is tf.errors.OutOfRangeError
    assert "StopIteration" in str(error)
    assert "hostcall.last_error(e) returns the exception itself" in str(error)
    assert type(hostcall.last_error(error)) is StopIteration
    assert hostcall.last_error() is hostcall.last_error(error)
    del error
    gc.collect()
    assert not Local.alive


# An exception that passes through nested compiled calls: its text, and the way back to it.


@pytest.fixture(params=["custom_call", "partition", "eager"])
def build(request: Any) -> Iterator[Callable[..., Any]]:
    """Makes a program of a function with a script op; eagerly there is no more than the op."""
    if request.param == "eager":
        yield lambda program: program
        return
    with hostcall.scope(route=request.param):
        yield jitted


@pytest.fixture(params=["numpy_function", "py_function"])
def op(request: Any, build: Any) -> Any:
    # Eagerly the former is a plain call.
    return getattr(tf, request.param if build is jitted else "py_function")


def raise_it() -> Any:
    raise DetailedError("the innermost")


def nested(build: Any, op: Any, change: Callable[[Any], Any] | None = None) -> Callable[[int], Any]:
    """The failure of a program that calls itself down to 0; `change` is what each level raises."""

    def deeper(x: Any) -> Any:
        try:
            return run(tf.constant(float(x) - 1.0)).numpy()
        except tf.errors.OpError as error:
            if change is None:
                raise
            change(error)

    run = build(lambda x: op(lambda x: deeper(x) if float(x) else raise_it(), [x], SPEC) + 1.0)
    return lambda depth: failure(run, tf.constant(float(depth)))


def test_each_level_adds_the_same_few_lines_and_has_its_exception(build: Any, op: Any) -> None:
    failure_at, depths = nested(build, op), (13, 15, 17)
    errors: list[Any] = [failure_at(depth) for depth in depths]
    texts = [*map(str, errors)]
    lengths = [len(text) for text in texts]
    assert abs((lengths[2] - lengths[1]) - (lengths[1] - lengths[0])) < 20
    for depth, text in zip(depths, texts, strict=True):
        assert text.count("in raise_it") == 1
        assert_says(text, "DetailedError: the innermost", f"deeper ({__file__}:")
        assert text.count("Passed on by") == depth
    if build is jitted:
        lines = [len(text.splitlines()) for text in texts]
        assert lines[2] - lines[0] == depths[2] - depths[0]
    error = errors[0]
    for _ in range(depths[0]):
        error = hostcall.last_error(error)
        assert isinstance(error, tf.errors.OpError)
    innermost = hostcall.last_error(error)
    assert type(innermost) is DetailedError
    assert innermost.code == 7


def from_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}") from error


def beside_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}")


def without_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}") from None


def with_a_note(error: Any) -> None:
    error.add_note("it failed: a note of the user's")
    raise error


def in_a_group(error: Any) -> None:
    raise ExceptionGroup("it failed: several", [error, KeyError("another")])


@pytest.mark.pairwise
@pytest.mark.parametrize("change", [from_it, beside_it, without_it, with_a_note, in_a_group])
def test_what_is_made_of_an_inner_error_does_not_double_it(
    build: Any, op: Any, change: Any
) -> None:
    texts = [str(nested(build, op, change)(depth)) for depth in (3, 5, 7)]
    lengths = [len(text) for text in texts]
    assert lengths[2] - lengths[1] < 1.5 * (lengths[1] - lengths[0])
    assert texts[2].count("in raise_it") == 1
    assert_says(texts[2], "it failed: ", *["KeyError: 'another'"] * (change is in_a_group))


# The call that an exception came from: the error names the user's line that made it.

ROUTES = ["custom_call", "partition"]
FAIL = hostcall.declare(raising(ValueError("in the layer")), result=like)


def by_numpy_function(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(raise_below_zero, [x], SPEC)
    return tf.numpy_function(raise_below_zero, [y - 1.0], SPEC)


def by_py_function(x: tf.Tensor) -> tf.Tensor:
    y = tf.py_function(raise_below_zero, [x], SPEC)
    return tf.py_function(raise_below_zero, [y - 1.0], SPEC)


CALLED = hostcall.callback(raise_below_zero, result=SPEC)


def by_callback(x: tf.Tensor) -> tf.Tensor:
    y = CALLED(x)
    return CALLED(y - 1.0)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("program", [by_numpy_function, by_py_function, by_callback])
def test_of_two_calls_the_one_that_failed_is_named(program: Any, route: str) -> None:
    with hostcall.scope(route=route):
        run = jitted(program)
        texts = [str(failure(run, tf.constant(x))) for x in (-1.0, 0.0)]
    for text, line, other in zip(texts, (1, 2), (2, 1), strict=True):
        assert f"called at {here(line, program)}" in text
        assert here(other, program) not in text
    assert f"raise_below_zero ({here(0, raise_below_zero)})" in texts[0]


@pytest.mark.parametrize("route", ROUTES)
def test_the_lines_that_led_to_the_call_are_those_of_plain_graph_mode(route: str) -> None:
    def inner(x: tf.Tensor) -> tf.Tensor:
        return by_numpy_function(x) * 2.0

    def outer(x: tf.Tensor) -> tf.Tensor:
        return inner(x) + 1.0

    with hostcall.scope(route=route):
        compiled = str(failure(jitted(outer), tf.constant(-1.0)))
    stock = str(failure(plain(outer), tf.constant(-1.0)))
    for function in (outer, inner, by_numpy_function):
        line = function.__code__.co_firstlineno + 1
        place = f'File "{__file__}", line {line}, in {function.__name__}\n'
        assert place in stock
        assert place in compiled


class Failing(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x + tf.numpy_function(FAIL, [x], x.dtype)


@pytest.mark.cpu("XLA compiles plain functions, and so Keras's, on XLA_CPU")
@pytest.mark.parametrize("route", [*ROUTES, None])
def test_keras_fit_names_the_layer_and_its_line(route: str | None) -> None:
    layers = [keras.layers.Dense(2), Failing(name="first"), Failing(name="second")]
    model = keras.Sequential([keras.Input((2,), batch_size=4), *layers])
    model.compile("sgd", "mse", jit_compile=route is not None)
    x = np.zeros((4, 2), np.float32)
    with hostcall.scope(route=route or "auto"):
        text = str(failure(lambda: model.fit(x, x, verbose=0)))
    assert "first" in text.splitlines()[2]
    assert "second" not in text
    line = Failing.call.__code__.co_firstlineno + 1
    assert_says(text, f'File "{__file__}", line {line}, in call\n', "ValueError: in the layer")


@pytest.mark.cpu("XLA's inverse is not checked")
def test_errors_of_other_ops_show_no_frames_of_hostcall() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(tf.linalg.inv, autograph=False)(tf.zeros([2, 2]))
    text = caught.value.message + "".join(traceback.format_exception(caught.value))
    assert "not invertible" in text
    assert os.path.dirname(hostcall.__file__) not in text
