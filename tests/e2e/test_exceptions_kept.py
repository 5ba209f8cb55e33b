"""For how long the exceptions of callbacks are kept, and what they hold."""

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import MODES, OPS, failure, on_two

X = tf.constant([1.0, 2.0])


class Local:
    """What a callback has in a local variable."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self) -> None:
        Local.alive.add(self)


@pytest.fixture(autouse=True)
def _none_alive() -> None:
    Local.alive = weakref.WeakSet()


def ending(_: Any) -> np.float32:
    local = Local()
    return next(iter([] if local else [np.float32(1)]))


def failing(_: Any) -> Any:
    local = Local()
    raise ValueError("blah" if local else "")


class Generator(Local):
    """What a dataset iterates over: something that the frames of each step refer to."""

    def __call__(self) -> Any:
        yield from (1.0, 2.0)


class RaggedGenerator(Local):
    """The same of ragged tensors, which go through a py_function."""

    def __call__(self) -> Any:
        yield tf.ragged.constant([[1.0]])


DATASETS: dict[str, Callable[[], tf.data.Dataset]] = {
    "from_generator": lambda: tf.data.Dataset.from_generator(
        Generator(), output_signature=tf.TensorSpec([], tf.float32)
    ),
    "from_generator of ragged tensors": lambda: tf.data.Dataset.from_generator(
        RaggedGenerator(),
        output_signature=tf.RaggedTensorSpec([None, None], tf.float32),
    ),
    "interleave": lambda: tf.data.Dataset.range(3).interleave(
        lambda _: tf.data.Dataset.from_generator(Generator(), tf.float32, []), 2
    ),
    "map of numpy_function": lambda: tf.data.Dataset.range(3).map(
        lambda i: tf.numpy_function(ending, [i], tf.float32)
    ),
    "map of py_function": lambda: tf.data.Dataset.range(3).map(
        lambda i: tf.py_function(ending, [i], tf.float32)
    ),
    "map of a compiled function": lambda: tf.data.Dataset.range(3).map(
        tf.function(
            lambda i: tf.numpy_function(ending, [i], tf.TensorSpec([], tf.float32)),
            jit_compile=True,
        )
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_nothing_is_kept_of_an_iteration_that_has_ended(name: str) -> None:
    dataset = DATASETS[name]()
    # To a map, what its function raises is no end.
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        for _ in dataset:
            pass
    del dataset
    gc.collect()
    assert not Local.alive


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_an_exception_is_kept_as_long_as_the_error_that_tells_of_it(build: Any, op: Any) -> None:
    run = build(on_two(op, failing))
    earlier = hostcall.last_error()  # of failures that nobody was told of
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


@pytest.mark.parametrize("op", OPS)
def test_the_error_of_an_eager_call_and_of_a_dataset_keep_theirs(op: Any) -> None:
    dataset = tf.data.Dataset.from_tensors(X).map(lambda x: op(failing, [x], tf.float32))
    error = failure(list, dataset)
    assert str(hostcall.last_error(error)) == "blah"
    del error, dataset
    gc.collect()
    assert not Local.alive


def test_the_error_of_a_session_keeps_its_exception() -> None:
    raised = KeyError("blah")

    def fail() -> Any:
        raise raised

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        result = tf.numpy_function(fail, [], tf.float32)
        error = failure(session.run, result)
    assert hostcall.last_error(error) is raised


def test_an_error_of_an_error_keeps_both() -> None:
    first = KeyError("first")

    def inner(x: Any) -> Any:
        raise first

    def outer(x: Any) -> Any:
        return tf.function(on_two(tf.py_function, inner))(x)

    error = failure(tf.function(on_two(tf.py_function, outer)), X)
    gc.collect()
    second = hostcall.last_error(error)
    assert isinstance(second, tf.errors.UnknownError)
    assert hostcall.last_error(second) is first


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_a_stop_iteration_is_told_but_not_kept(build: Any, op: Any) -> None:
    error = failure(build(on_two(op, ending)), X)
    assert type(error) is tf.errors.OutOfRangeError
    assert "StopIteration" in str(error)
    assert "hostcall error" not in str(error)
    assert hostcall.last_error(error) is None
    assert not Local.alive
