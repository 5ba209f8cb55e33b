"""hostcall._control: switching on and off, and being imported late."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import _control, _installation
from tests.support.helpers import each_public_op, gradient_of, jitted

X = tf.constant([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    yield
    hostcall.enable()


def _jitted(op: Any) -> Any:
    return jitted(lambda x: tf.ensure_shape(op(lambda x: x + np.float32(1.0), [x], x.dtype), [3]))


@each_public_op
def test_disabled_functions_fail_and_say_why(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    with pytest.raises(tf.errors.InvalidArgumentError, match="hostcall is disabled") as caught:
        program(X)
    assert "hostcall.enable()" in str(caught.value)


@each_public_op
def test_a_function_traced_while_disabled_works_once_enabled(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    program.get_concrete_function(X)
    hostcall.enable()
    np.testing.assert_array_equal(_jitted(op)(X), X + 1.0)


@each_public_op
def test_compiled_programs_go_on_while_disabled(op: Any) -> None:
    program = _jitted(op)
    np.testing.assert_array_equal(program(X), X + 1.0)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), X + 1.0)


def test_gradients_of_compiled_programs_go_on_while_disabled() -> None:
    cube = lambda x: tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])  # noqa: E731
    program = jitted(lambda x: gradient_of(cube, x))
    np.testing.assert_array_equal(program(X), 3.0 * X**2)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), 3.0 * X**2)


def test_enabling_and_disabling_twice_is_no_error() -> None:
    for switch in (hostcall.enable, hostcall.disable, hostcall.enable, hostcall.disable):
        switch()
        once = _installation.TABLE.installed
        switch()
        assert _installation.TABLE.installed == once
    hostcall.enable()
    np.testing.assert_array_equal(_jitted(tf.py_function)(X), X + 1.0)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, True), ("", True), ("0", True), ("1", False), ("true", False)]
)
def test_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    monkeypatch.delenv("HOSTCALL_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("HOSTCALL_DISABLE", value)
    assert _control.enabled_by_environment() is expected


_SWITCHED_OFF = """
import tensorflow as tf
{import_hostcall}
x = tf.constant([1.0, 2.0])
jitted = tf.function(lambda x: tf.py_function(lambda x: x, [x], tf.float32), jit_compile=True)
try:
    jitted(x)
except tf.errors.InvalidArgumentError as error:
    print("hostcall" in str(error), str(error).split(" on ")[1])
print(tf.function(lambda x: tf.py_function(lambda x: x + 1.0, [x], tf.float32))(x).numpy())
"""


def test_switched_off_by_the_environment_stock_is_untouched(run_python: Any) -> None:
    stock = run_python(_SWITCHED_OFF.format(import_hostcall=""))
    assert "EagerPyFunc (No registered 'EagerPyFunc' OpKernel" in stock
    script = _SWITCHED_OFF.format(import_hostcall="import hostcall")
    assert run_python(script, HOSTCALL_DISABLE="1") == stock


_SWITCHED_ON_LATER = """
import numpy as np, tensorflow as tf, hostcall
hostcall.disable()
hostcall.enable()
spec = tf.TensorSpec([2], tf.float32)
f = tf.function(lambda x: tf.numpy_function(np.sqrt, [x], spec), jit_compile=True)
print(f(tf.constant([1.0, 4.0])).numpy())
"""


def test_enable_overrides_the_environment(run_python: Any) -> None:
    assert run_python(_SWITCHED_ON_LATER, HOSTCALL_DISABLE="1") == "[1. 2.]\n"
