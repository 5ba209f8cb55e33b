"""hostcall._control: switching on and off, and being imported late."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import script_ops

import hostcall
from hostcall import _control

X = tf.constant([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    yield
    hostcall.enable()


def _names() -> dict[str, Any]:
    """Return the parts of TensorFlow that hostcall replaces while it is enabled."""
    from tensorflow.python.eager.polymorphic_function import transform
    from tensorflow.python.framework import ops

    return {
        "_internal_py_func": script_ops._internal_py_func,
        "py_func_common": script_ops.py_func_common,
        "gradient": ops.gradient_registry.lookup("EagerPyFunc"),
        "transforms": list(transform.FUNC_GRAPH_TRANSFORMS),
    }


def _jitted(op: Any) -> Any:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(op(lambda x: x + np.float32(1.0), [x], tf.float32), [3])

    return program


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function, tf.compat.v1.py_func])
def test_disabled_functions_fail_and_say_why(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    with pytest.raises(tf.errors.InvalidArgumentError, match="hostcall is disabled") as caught:
        program(X)
    assert "hostcall.enable()" in str(caught.value)


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function, tf.compat.v1.py_func])
def test_a_function_traced_while_disabled_works_once_enabled(op: Any) -> None:
    program = _jitted(op)
    hostcall.disable()
    program.get_concrete_function(X)
    hostcall.enable()
    np.testing.assert_array_equal(_jitted(op)(X), X + 1.0)


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function, tf.compat.v1.py_func])
def test_compiled_programs_go_on_while_disabled(op: Any) -> None:
    program = _jitted(op)
    np.testing.assert_array_equal(program(X), X + 1.0)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), X + 1.0)


def test_gradients_of_compiled_programs_go_on_while_disabled() -> None:
    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.ensure_shape(tf.py_function(lambda x: x**3, [x], tf.float32), [3])
        return tape.gradient(y, x)

    np.testing.assert_array_equal(program(X), 3.0 * X**2)
    hostcall.disable()
    np.testing.assert_array_equal(program(X), 3.0 * X**2)


def test_a_plain_graph_traced_while_enabled_has_its_gradient_while_disabled() -> None:
    @tf.function
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda x: x**3, [x], tf.float32)

    program.get_concrete_function(X)
    hostcall.disable()
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = program(X)
    np.testing.assert_allclose(y, X**3)
    np.testing.assert_array_equal(tape.gradient(y, X), 3.0 * X**2)


def test_while_disabled_plain_graph_and_eager_mode_are_stock() -> None:
    hostcall.disable()
    for op in (tf.numpy_function, tf.py_function):
        plain = tf.function(lambda x, op=op: op(lambda x: x * 2.0, [x], tf.float32))
        np.testing.assert_array_equal(plain(X), 2.0 * X)
        np.testing.assert_array_equal(op(lambda x: x * 2.0, [X], tf.float32), 2.0 * X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf.py_function(lambda x: x**3, [X], tf.float32)
    np.testing.assert_array_equal(tape.gradient(y, X), 3.0 * X**2)


def test_disable_restores_tensorflows_own_functions_and_enable_ours() -> None:
    enabled = _names()
    hostcall.disable()
    disabled = _names()
    for name in ("_internal_py_func", "py_func_common"):
        assert disabled[name].__module__.startswith("tensorflow.")
        assert enabled[name].__module__.startswith("hostcall.")
    assert disabled["transforms"] == []
    hostcall.enable()
    assert _names() == enabled


def test_enabling_and_disabling_twice_is_no_error() -> None:
    enabled = _names()
    hostcall.enable()
    assert _names() == enabled
    hostcall.disable()
    disabled = _names()
    hostcall.disable()
    assert _names() == disabled
    for _ in range(3):
        hostcall.enable()
        hostcall.disable()
    assert _names() == disabled
    hostcall.enable()
    assert _names() == enabled
    np.testing.assert_array_equal(_jitted(tf.py_function)(X), X + 1.0)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, True), ("", True), ("0", True), ("1", False), ("true", False)]
)
def test_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    if value is None:
        monkeypatch.delenv("HOSTCALL_DISABLE", raising=False)
    else:
        monkeypatch.setenv("HOSTCALL_DISABLE", value)
    assert _control.enabled_by_environment() is expected


_SWITCHED_OFF = """
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import script_ops

def touched():
    gradient = ops.gradient_registry.lookup("EagerPyFunc")
    return [script_ops._internal_py_func, script_ops.py_func_common, gradient]

before = touched()
{import_hostcall}
assert touched() == before
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
f = tf.function(lambda x: tf.ensure_shape(tf.numpy_function(np.sqrt, [x], tf.float32), [2]),
                jit_compile=True)
print(f(tf.constant([1.0, 4.0])).numpy())
"""


def test_enable_overrides_the_environment(run_python: Any) -> None:
    assert run_python(_SWITCHED_ON_LATER, HOSTCALL_DISABLE="1") == "[1. 2.]\n"
