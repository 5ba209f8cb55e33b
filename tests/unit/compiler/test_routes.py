"""hostcall.configure, hostcall.scope and declare(route=): which route a script op takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._callbacks import requested_routes
from tests.support.helpers import failure, jitted
from tests.support.stress.template import Ended, Template

X = tf.constant([2.0, 1.0, 2.0])

pytestmark = pytest.mark.usefixtures("auto")


@pytest.fixture
def auto() -> Iterator[None]:
    """Whatever the route of the whole test run is."""
    configured = requested_routes.current()
    hostcall.configure(route="auto")
    yield
    hostcall.configure(route=configured)


def known(x: tf.Tensor, function: Any = np.sort) -> tf.Tensor:
    return tf.numpy_function(function, [x], tf.TensorSpec([3], tf.float32))


def unknown(x: tf.Tensor, function: Any = np.unique) -> tf.Tensor:
    return tf.numpy_function(function, [x], tf.float32)


def is_partitioned(function: Any) -> bool:
    """Return whether the function is partitioned, by the names of the functions that it adds."""
    names = {name.decode() for name in _function_names()}
    function(X)
    new = {name.decode() for name in _function_names()} - names
    return any("__partitioned" in name for name in new)


def _function_names() -> list[bytes]:
    from tensorflow.python.eager import context

    return [name.encode() for name in context.context().list_function_names()]


def test_auto_partitions_where_no_shape_is_known() -> None:
    assert is_partitioned(jitted(unknown))
    assert not is_partitioned(jitted(known))


def test_auto_asks_a_rule() -> None:
    """One knows the shape when XLA compiles; the other never does."""
    signature = [tf.TensorSpec([None], tf.float32)]

    def same(x: Any) -> Any:
        return x + 1.0

    def some(x: Any) -> Any:
        return x[x > 1.0]

    hostcall.declare(same, result=lambda x: x)
    hostcall.declare(some, result=lambda x: tf.TensorSpec([None], x.dtype))
    for function, partitioned in ((same, False), (some, True)):
        program = tf.function(
            lambda x, f=function: unknown(x, f), jit_compile=True, input_signature=signature
        )
        assert is_partitioned(program) is partitioned
        np.testing.assert_array_equal(program(X), function(X.numpy()))


def test_values_that_cannot_enter_xla_do_not_partition() -> None:
    def length(x: tf.Tensor) -> tf.Tensor:
        text = tf.strings.as_string(x)
        return tf.numpy_function(lambda t: t.size, [text], tf.TensorSpec([], tf.int64)) * 2

    assert not is_partitioned(jitted(length))
    assert jitted(length)(X).numpy() == X.shape[0] * 2


def test_configure() -> None:
    hostcall.configure(route="partition")
    assert is_partitioned(jitted(known))
    hostcall.configure(route="custom_call")
    assert not is_partitioned(jitted(known))
    assert "custom_call" in failure(jitted(unknown), X).message
    hostcall.configure(route="auto")
    assert is_partitioned(jitted(unknown))


def test_a_scope_takes_precedence_over_the_configuration() -> None:
    hostcall.configure(route="custom_call")
    with hostcall.scope(route="partition"):
        outer = jitted(known)
        outer(X)
        with hostcall.scope(route="auto"):
            assert not is_partitioned(jitted(known))
        assert is_partitioned(jitted(known))
    assert not is_partitioned(jitted(known))
    assert is_partitioned(jitted(known)) is False


def test_what_counts_is_when_a_function_is_traced() -> None:
    inside, outside = jitted(known), jitted(known)
    outside.get_concrete_function(X)
    with hostcall.scope(route="partition"):
        inside.get_concrete_function(X)
        assert not is_partitioned(outside)
    assert is_partitioned(inside)


def test_a_scope_is_of_its_thread() -> None:
    seen: list[str] = []
    with hostcall.scope(route="partition"):
        thread = threading.Thread(target=lambda: seen.append(requested_routes.current()))
        thread.start()
        thread.join()
    assert seen == ["auto"]


def test_a_declaration_takes_precedence_over_both() -> None:
    def own(x: Any) -> Any:
        return np.sort(x)

    hostcall.declare(own, route="partition")
    with hostcall.scope(route="custom_call"):
        assert is_partitioned(jitted(lambda x: known(x, own)))
        assert not is_partitioned(jitted(known))
    hostcall.declare(own, route="auto")
    with hostcall.scope(route="partition"):
        assert not is_partitioned(jitted(lambda x: known(x, own)))


def test_one_function_holds_both_routes() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        return unknown(known(x) * 2.0) + tf.reduce_sum(known(x))

    np.testing.assert_array_equal(jitted(program)(X), [7.0, 9.0])


def test_a_partitioning_of_functions_without_script_ops() -> None:
    def counts(x: tf.Tensor) -> tf.Tensor:
        return tf.unique_with_counts(x * 2.0)[2] + 1

    with (
        hostcall.scope(route="custom_call"),
        pytest.raises(tf.errors.InvalidArgumentError, match="UniqueWithCounts"),
    ):
        jitted(counts)(X)
    with hostcall.scope(route="partition"):
        function = jitted(counts)
        np.testing.assert_array_equal(function(X), [3, 2])
    assert not is_partitioned(jitted(lambda x: x * 2.0))


def of_a_string(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.numpy_function(str, [x], tf.TensorSpec([], tf.string)))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (unknown, "the shape of result 0"),
        (of_a_string, "a string cannot enter or leave an XLA program"),
    ],
)
def test_a_forced_custom_call_says_why_it_cannot_be(program: Any, reason: str) -> None:
    with hostcall.scope(route="custom_call"):
        message = failure(jitted(program), X).message
    for part in (reason, "route='custom_call'", "route='auto'", __file__):
        assert part in message


def test_a_program_that_is_compiled_as_a_whole_whatever_was_asked_for() -> None:
    """Compile a function for its text: hostcall chooses no route, and XLA can take the op."""
    with hostcall.scope(route="partition"):
        function = jitted(lambda x: known(x))
        text = function.experimental_get_compiler_ir(X)(stage="hlo")
    assert 'custom_call_target="hostcall"' in text


@pytest.mark.parametrize("wrong", ["fast", "", 1])
def test_there_are_three_routes(wrong: Any) -> None:
    with pytest.raises(ValueError, match="'auto', 'custom_call', 'partition'"):
        hostcall.configure(route=wrong)
    with (
        pytest.raises(ValueError, match="'auto', 'custom_call', 'partition'"),
        hostcall.scope(route=wrong),
    ):
        pass
    if isinstance(wrong, str) and wrong:
        with pytest.raises(ValueError, match="'auto', 'custom_call', 'partition'"):
            hostcall.declare(np.sort, route=wrong)
    assert requested_routes.current() == "auto"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("partition", "partition"), ("custom_call", "custom_call"), ("", "auto")],
)
def test_the_environment(fresh_python: Template, value: str, expected: str) -> None:
    ended = _import_with_route(fresh_python, value)
    assert (ended.printed.strip(), ended.status) == (expected, 0)


def test_a_wrong_route_in_the_environment(fresh_python: Template) -> None:
    ended = _import_with_route(fresh_python, "quick")
    assert ended.status == 1
    assert "HOSTCALL_ROUTE='quick' is not one of 'auto', 'custom_call', 'partition'" in ended.said


def _import_with_route(fresh_python: Template, value: str) -> Ended:
    code = "import hostcall._callbacks.requested_routes as r; print(r.current())"
    return fresh_python.run_program(code, HOSTCALL_ROUTE=value)


def test_the_log_says_once_that_a_function_is_partitioned(caplog: pytest.LogCaptureFixture) -> None:
    def halves(x: Any) -> Any:
        return x[: len(x) // 2]

    def program(x: tf.Tensor) -> tf.Tensor:
        return unknown(x, halves)

    with caplog.at_level(logging.WARNING, "hostcall"):
        function = jitted(program)
        function(X)
        function(X[:2])
        jitted(program)(X)
    (record,) = [record for record in caplog.records if record.name == "hostcall"]
    message = record.getMessage()
    assert "halves" in message
    assert __file__ in message
    assert "hostcall.declare(halves, result=lambda x:" in message
    assert "\n" not in message


def test_the_log_is_silent_where_partitioning_was_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "hostcall"), hostcall.scope(route="partition"):
        jitted(lambda x: unknown(x, lambda v: v[:1]))(X)
    assert caplog.records == []
