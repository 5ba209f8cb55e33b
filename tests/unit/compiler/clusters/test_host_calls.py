"""hostcall._compiler.clusters: script ops on the host, between compiled clusters."""

from typing import Any

import pytest
import tensorflow as tf

import hostcall
from hostcall._compiler.clusters import host_calls
from hostcall_runtime import _errors
from tests.support.helpers import failure, jitted, raising

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
    (_errors.ResultError("blah", tf.errors.INTERNAL), tf.errors.InternalError),
    (hostcall.LoweringError("blah"), tf.errors.InvalidArgumentError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_exception_comes_back_with_its_status_and_once(error: Any, kind: Any) -> None:
    program = failing(error)
    raised = failure(program, X)
    assert type(raised) is kind
    assert raised.message.startswith(("blah", f"{type(error).__name__}: "))
    assert raised.message.count("[hostcall error") <= 1
    by_dataset = failure(list, tf.data.Dataset.from_tensors(X).map(lambda x: program(x)))
    if kind is tf.errors.OutOfRangeError:
        kind = tf.errors.InvalidArgumentError  # of tf.data's, for which it means the end
    assert type(by_dataset) is kind
    assert "blah" in by_dataset.message
    for text in ("hostcall call", "__partitioned"):
        assert text not in raised.message
    assert "hostcall call" not in by_dataset.message


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
