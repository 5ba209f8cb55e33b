"""An exception that passes through nested compiled calls: its text, and the way back to it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import DetailedError, failure, jitted

SPEC = tf.TensorSpec([], tf.float32)


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


class Nested:
    """Programs that call themselves, down to 0, where `fail` is called."""

    def __init__(self, build: Any, op: Any, fail: Callable[[], Any]) -> None:
        self._fail = fail
        self._run = build(lambda x: op(self._step, [x], SPEC) + 1.0)

    def _step(self, x: Any) -> Any:
        if float(x) == 0.0:
            return self._fail()
        return self._deeper(x)

    def _deeper(self, x: Any) -> Any:
        return self._run(tf.constant(float(x) - 1.0)).numpy()

    def failure(self, depth: int) -> Any:
        return failure(self._run, tf.constant(float(depth)))


def raise_it() -> Any:
    raise DetailedError("the innermost")


def test_each_level_adds_the_same_few_lines(build: Any, op: Any) -> None:
    nested = Nested(build, op, raise_it)
    texts = [str(nested.failure(depth)) for depth in (13, 15, 17)]
    lengths = [len(text) for text in texts]
    assert abs((lengths[2] - lengths[1]) - (lengths[1] - lengths[0])) < 20
    for depth, text in zip((13, 15, 17), texts, strict=True):
        assert text.count("in raise_it") == 1
        assert "DetailedError: the innermost" in text
        assert text.count("Passed on by") == depth
        assert f"_deeper ({__file__}:" in text


def test_a_compiled_level_adds_one_line(build: Any, op: Any) -> None:
    nested = Nested(jitted, op, raise_it)
    lines = [len(str(nested.failure(depth)).splitlines()) for depth in (3, 7)]
    assert lines[1] - lines[0] == 4


def test_each_level_leads_to_its_own_exception(build: Any, op: Any) -> None:
    error = Nested(build, op, raise_it).failure(7)
    for _ in range(7):
        error = hostcall.last_error(error)
        assert isinstance(error, tf.errors.OpError)
    innermost = hostcall.last_error(error)
    assert type(innermost) is DetailedError
    assert innermost.code == 7


def reraising(kind: Any) -> Callable[..., Any]:
    """A step that puts the text of the inner error into one of its own."""

    class Reraising(Nested):
        def _deeper(self, x: Any) -> Any:
            try:
                return super()._deeper(x)
            except tf.errors.OpError as error:
                kind(error)

    return Reraising


def from_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}") from error


def beside_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}")


def without_it(error: Any) -> None:
    raise ValueError(f"it failed: {error}") from None


def with_a_note(error: Any) -> None:
    error.add_note("a note of the user's")
    raise error


def in_a_group(error: Any) -> None:
    raise ExceptionGroup("several", [error, KeyError("another")])


@pytest.mark.parametrize("kind", [from_it, beside_it, without_it, with_a_note, in_a_group])
def test_what_is_made_of_an_inner_error_does_not_double_it(build: Any, op: Any, kind: Any) -> None:
    nested = reraising(kind)(build, op, raise_it)
    texts = [str(nested.failure(depth)) for depth in (3, 5, 7)]
    lengths = [len(text) for text in texts]
    assert lengths[2] - lengths[1] < 1.5 * (lengths[1] - lengths[0])
    assert texts[2].count("in raise_it") == 1
    if kind is with_a_note:
        assert "a note of the user's" in texts[2]
    if kind is in_a_group:
        assert "KeyError: 'another'" in texts[2]
