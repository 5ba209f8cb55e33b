"""hostcall.export: what cannot be exported, and what the errors say of it."""

import functools
import importlib.machinery
import re
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numba
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
from tests.support.exported import exported, user_code
from tests.support.exported.exported import F3
from tests.support.helpers import assert_says, gradient_of, jitted
from tests.support.versions import reads_programs_of_jax


def same(function: Any, **options: Any) -> Any:
    return hostcall.callback(function, result=lambda x: x, **options)


class Scaler:
    def scale(self, x: np.ndarray) -> np.ndarray:
        return x * 2


def test_callbacks_without_a_name_are_listed_all_at_once() -> None:
    def local(x: np.ndarray) -> np.ndarray:
        return x

    functions = [
        same(lambda x: x + 1),
        same(local),
        same(functools.partial(user_code.sine)),
        same(Scaler().scale),
        same(user_code.sine),
    ]

    def program(x: tf.Tensor) -> tf.Tensor:
        for function in functions:
            x = function(x)
        return tf.ensure_shape(tf.numpy_function(lambda v: v * 2, [x], tf.float32), [3])

    with pytest.raises(ValueError, match="another process could not find") as caught:
        hostcall.export(program, F3)
    message = str(caught.value)
    listed = [line for line in message.splitlines() if line.startswith("  - ")]
    assert len(listed) == 5
    assert_says(message, "a lambda", "defined inside of another function", "a functools.partial")
    assert_says(message, "a method of a Scaler object", 'hostcall.callback(function, name="solver"')
    assert_says(message, "hostcall_mlir.load(directory, callbacks=")
    assert "test_export_errors.py:" in message  # file and line of the user's code


def test_a_function_that_its_module_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = same(user_code.sine)
    monkeypatch.setattr(user_code, "sine", user_code.note)
    with pytest.raises(ValueError, match=r"user_code\.sine is something else by now"):
        hostcall.export(jitted(lambda x: callback(x)), F3)


def test_a_function_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType("__main__")
    exec("def function(x): return x", vars(script))
    monkeypatch.setitem(sys.modules, "__main__", script)
    callback = same(script.function)
    with pytest.raises(ValueError, match="defined in the script that runs"):
        hostcall.export(jitted(lambda x: callback(x)), F3)
    script.__spec__ = importlib.machinery.ModuleSpec("package.script", None)
    program = hostcall.export(jitted(lambda x: callback(x)), F3)
    assert [callback.name for callback in program.manifest.callbacks] == ["package.script:function"]


def ragged(x: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(x, [0, 1, 3], validate=False)


def differentiated(x: tf.Tensor) -> Any:
    return gradient_of(lambda x: tf.py_function(exported.doubled_tensor, [x], F3), x)


def growing(x: tf.Tensor) -> tf.Tensor:
    """Would lose what is written."""
    rows = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3])
    for i in range(3):
        rows = rows.write(i, x)
    return rows.stack()


bounded = hostcall.callback(user_code.unique, result=hostcall.BoundedSpec([3], tf.float32, [0]))
MODEL = exported.Model()  # of which its methods do not take hold
UNKNOWN = tf.TensorSpec([None, 3], tf.float32)
STRINGS = tf.TensorSpec([3], tf.string)
RAGGED = tf.RaggedTensorSpec([2, None], tf.float32)
# Functions, the spec of their argument, and what the error says.
REFUSED: dict[str, tuple[Any, Any, list[str]]] = {
    "an unknown size": (
        exported.straight,
        UNKNOWN,
        ["'x' has the shape (None, 3)", "tf.TensorSpec([32, 3], tf.float32)"],
    ),
    "an assigned constant": (
        MODEL.step,
        F3,
        ["it assigns 'scale', 'count', which a constant", 'variables="inputs"'],
    ),
    "what XLA does not compile": (
        lambda x: tf.unique_with_counts(x)[2],
        F3,
        ["XLA cannot compile it", "Unique"],
    ),
    "a string": (tf.strings.as_string, F3, ["as_string", ": result 0 is of dtype string, which"]),
    "strings": (tf.strings.length, STRINGS, ["argument 'input' is of dtype string, which"]),
    "a shape that nothing tells": (
        lambda x: tf.numpy_function(user_code.half, [x], tf.float32),
        F3,
        ["XLA cannot compile it", "hostcall.declare", "is one program, whatever the route."],
    ),
    "a ragged argument": (
        lambda x: x.values,
        RAGGED,
        ["an argument is a RaggedTensorSpec, which is not a single tensor"],
    ),
    "a ragged result": (ragged, F3, ["a result is a Ragged", ", which is not a single tensor"]),
    "the gradient of a py_function": (
        differentiated,
        F3,
        ["the program computes its gradient", "hostcall.callback(..., grad=...)"],
    ),
    "a vector of bounded size as a matrix of one row": (
        lambda x: tf.reshape(bounded(x), [1, -1]),
        F3,
        ["TensorFlow has no StableHLO for an op of it"],
    ),
    "a list that grows": (growing, F3, ["writes to a list that may grow"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported(name: str) -> None:
    function, spec, parts = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(parts[0])) as caught:
        hostcall.export(function, spec)
    assert_says(caught.value, *parts)
    assert "HLO text" not in str(caught.value)


@pytest.mark.tensorflow("2.21", "TensorFlow has them from then on")
@pytest.mark.parametrize("dtype", ["int2", "uint2", "float4_e2m1fn"])
def test_numbers_of_less_than_a_byte(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"argument 'x' is of dtype {dtype}, for which") as caught:
        hostcall.export(lambda x: x, tf.TensorSpec([3], dtype))
    assert "array.astype(np.int8)" in str(caught.value)


def test_an_unknown_choice_for_variables() -> None:
    with pytest.raises(ValueError, match="variables='saved' is neither 'constants' nor 'inputs'"):
        hostcall.export(exported.straight, F3, variables="saved")


def test_a_table() -> None:
    init = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2]))
    table = tf.lookup.StaticHashTable(init, 0)
    with pytest.raises(
        ValueError, match=r"XLA cannot compile it|neither a tensor nor a tf\.Variable"
    ):
        hostcall.export(table.lookup, tf.TensorSpec([1], tf.int32))


@pytest.mark.parametrize("what", [None, 3, "predict"])
def test_what_is_no_function(what: Any) -> None:
    with pytest.raises(TypeError, match=f"wants a tf.function .* and not {what!r}"):
        hostcall.export(what, F3)


def test_a_function_of_jax() -> None:
    with pytest.raises(TypeError, match=r"hostcall.export\(hostcall.jax.to_tf\(function\), ...\)"):
        hostcall.export(jax.jit(jnp.sin), F3)


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict"])
def test_loops_of_keras(name: str) -> None:
    model = keras.Sequential([keras.layers.Rescaling(2.0)])
    with pytest.raises(TypeError, match=f"{name} of a Keras model is a loop in Python") as caught:
        hostcall.export(getattr(model, name), F3)
    assert "hostcall.export(model, ...)" in str(caught.value)


@pytest.mark.parametrize("called_before", [False, True])
def test_a_shape_that_nothing_needs(called_before: bool) -> None:
    """Compiled here, the result may have any shape; what was compiled is nothing to export."""

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(user_code.half, [x], tf.float32)
        return x + 1.0

    if called_before:
        program(tf.ones([3]))
    with pytest.raises(ValueError, match="shape of result 0"):
        hostcall.export(program, tf.TensorSpec([3]))


def test_an_argument_by_name_alone() -> None:
    traced = tf.function(lambda x, *, y: x + y).get_concrete_function(F3, y=F3)
    with pytest.raises(ValueError, match="'y' can be given by name alone"):
        hostcall.export(traced)


def test_specs_for_what_has_been_traced() -> None:
    traced = jitted(exported.straight).get_concrete_function(F3)
    with pytest.raises(ValueError, match="takes no others"):
        hostcall.export(traced, F3)


def test_native_code() -> None:
    @numba.cfunc("void(CPointer(float32), CPointer(float32))")
    def code(x: Any, y: Any) -> None:
        y[0] = x[0]

    spec = tf.TensorSpec([3], tf.float32)
    native = hostcall.native(code, result=spec)
    with pytest.raises(ValueError, match="'hostcall_native', which works only in the process"):
        hostcall.export(lambda x: tf.numpy_function(native, [x], tf.float32), F3)


def test_it_leaves_nothing_behind() -> None:
    from hostcall._tf import concrete_functions

    traced = jitted(exported.looping).get_concrete_function(F3, exported.I)
    name = f"{traced.function_def.signature.name}__hostcall"
    hostcall.export(traced)
    assert concrete_functions.function_of_context(name) is None


@pytest.mark.parametrize("package", ["msgspec", "jaxlib.mlir"])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    for name in [*sys.modules]:
        if name.startswith(
            ("hostcall_mlir", "hostcall._export.exporting", "hostcall._export.loading")
        ):
            monkeypatch.delitem(sys.modules, name)
        elif name == package or name.startswith(f"{package}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    for call in (lambda: hostcall.export(exported.straight, F3), lambda: hostcall.load("program")):
        with pytest.raises(ImportError, match=r"pip install 'hostcall\[jax\]'"):
            call()


@reads_programs_of_jax
def test_a_jax_function_is_called_by_its_name() -> None:
    def of_jax(x: Any) -> Any:
        return hostcall.jax.call(lambda v: v, x, x)

    converted = hostcall.jax.to_tf(of_jax)
    for function in (converted, jitted(converted)):
        with pytest.raises(ValueError, match=r"hostcall\.export of .*of_jax .*test_export_errors"):
            hostcall.export(function, F3)
    program = hostcall.export(hostcall.jax.to_tf(jnp.sin), F3)
    assert program.manifest.function == "sin"


def test_a_concatenation_that_begins_with_a_fixed_size_is_an_error_and_no_crash() -> None:
    """TensorFlow ends the process where StableHLO's concatenation has its first size fixed."""

    def program(x: tf.Tensor, *, is_first: bool = False) -> tf.Tensor:
        return tf.concat([bounded(x), x] if is_first else [x, bounded(x)], 0)

    with pytest.raises(ValueError, match=r"op 'concat' joins an array of fixed size"):
        hostcall.export(program, F3)
    assert hostcall.export(functools.partial(program, is_first=True), F3).artifact
