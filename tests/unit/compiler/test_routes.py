"""hostcall.configure, hostcall.scope and declare(route=): which route a script op takes."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import hostcall
from hostcall._ops import requested_routes
from tests.support.helpers import assert_says, failure, jitted
from tests.support.stress.template import Template
from tests.support.threads import in_threads

X = tf.constant([2.0, 1.0, 2.0])

pytestmark = pytest.mark.usefixtures("auto")


@pytest.fixture
def auto() -> Iterator[None]:
    """Configure the route "auto", whatever that of the test run is."""
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
    names = context.context().list_function_names
    before = {*names()}
    function(X)
    return any("__partitioned" in name for name in {*names()} - before)


def test_configure() -> None:
    assert not is_partitioned(jitted(known))
    hostcall.configure(route="partition")
    assert is_partitioned(jitted(known))
    hostcall.configure(route="custom_call")
    assert not is_partitioned(jitted(known))
    assert "route='auto'" in failure(jitted(unknown), X).message
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
        in_threads(1, lambda _: seen.append(requested_routes.current()))
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


def test_a_program_that_is_compiled_as_a_whole_whatever_was_asked_for() -> None:
    """Compile a function for its text: hostcall chooses no route, and XLA can take the op."""
    with hostcall.scope(route="partition"):
        function = jitted(lambda x: known(x))
        text = function.experimental_get_compiler_ir(X)(stage="hlo")
    assert 'custom_call_target="hostcall"' in text


@pytest.mark.parametrize("wrong", ["fast", "", 1])
def test_there_are_three_routes(wrong: Any) -> None:
    message = "'auto', 'custom_call', 'partition'"
    options: Any = {"route": wrong}
    with pytest.raises(ValueError, match=message):
        hostcall.configure(route=wrong)
    with pytest.raises(ValueError, match=message), hostcall.scope(route=wrong):
        pass
    if isinstance(wrong, str) and wrong:
        with pytest.raises(ValueError, match=message):
            hostcall.declare(np.sort, **options)
    assert requested_routes.current() == "auto"


WRONG = "HOSTCALL_ROUTE='quick' is not one of 'auto', 'custom_call', 'partition'"


@pytest.mark.parametrize(
    ("value", "said", "status"),
    [
        ("partition", "partition", 0),
        ("custom_call", "custom_call", 0),
        ("", "auto", 0),
        ("quick", WRONG, 1),
    ],
)
def test_the_environment(fresh_python: Template, value: str, said: str, status: int) -> None:
    code = "import hostcall._ops.requested_routes as r; print(r.current())"
    ended = fresh_python.run_program(code, HOSTCALL_ROUTE=value)
    assert ended.status == status
    assert said in (ended.said if status else ended.printed.splitlines())


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
        with hostcall.scope(route="partition"):
            jitted(lambda x: unknown(x, lambda v: v[:1]))(X)
    (record,) = [record for record in caplog.records if record.name == "hostcall"]
    message = record.getMessage()
    assert_says(message, "halves", __file__, "hostcall.declare(halves, result=lambda x:")
    assert len(message.splitlines()) == 4
