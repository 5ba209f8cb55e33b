"""hostcall._functions.callback: `hostcall.callback`, its objects and its errors."""

import collections
import concurrent.futures
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph_api

import hostcall
from tests.support.helpers import assert_equal, assert_says, jitted, plain
from tests.support.memo import eagerly

X = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


each_mode = pytest.mark.parametrize("mode", [eagerly, plain, jitted])
each_kind = pytest.mark.parametrize("kind", ["numpy", "eager"])

Point = collections.namedtuple("Point", ["x", "y"])


RESULTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "spec": (tf.TensorSpec([2, 3], tf.float32), lambda x: x),
    "rule": (lambda x: tf.TensorSpec(x.shape, x.dtype), lambda x: x),
    "the input's spec": (lambda x: x, lambda x: x),
    "tuple": (lambda x: (x, tf.TensorSpec([], tf.int32)), lambda x: (x, np.int32(7))),
    "list": (lambda x: [x, x], lambda x: [x, x + x]),
    "dict": (lambda x: {"b": x, "a": tf.TensorSpec([2])}, lambda x: {"a": x[:, 0], "b": x}),
    "named tuple": (lambda x: Point(x, x), lambda x: Point(x=x, y=x + x)),
    "nested": (lambda x: {"p": Point([x], x), "q": x}, lambda x: {"p": Point([x], x), "q": x}),
}


@pytest.mark.pairwise
@each_mode
@each_kind
@pytest.mark.parametrize(("result", "function"), RESULTS.values(), ids=RESULTS.keys())
def test_results_have_the_structure(mode: Any, kind: Any, result: Any, function: Any) -> None:
    called = hostcall.callback(function, result=result, kind=kind)
    expected, actual = function(X.numpy()), mode(lambda x: called(x))(X)
    tf.nest.assert_same_structure(actual, expected)
    assert_equal(actual, expected)


@each_mode
@each_kind
def test_arguments_can_be_structures(mode: Any, kind: Any) -> None:
    structures = []

    def rule(d: Any, p: Any) -> Any:
        structures.append((sorted(d), type(p)))
        return d["b"]

    def mixed(d: Any, p: Any) -> Any:
        assert sorted(d) == ["a", "b"]
        assert isinstance(p, Point)
        return d["b"] * p.x + d["a"][0] + p.y

    called = hostcall.callback(mixed, result=rule, kind=kind)
    program = mode(lambda x: called({"b": x, "a": [x, -x]}, Point(2.0, x)))
    np.testing.assert_array_equal(program(X), 4.0 * X)
    assert set(map(str, structures)) == {str((["a", "b"], Point))}


def test_what_a_callback_says_of_itself() -> None:
    @hostcall.callback(result=lambda x: x, name="test_callback.documented", stateful=False)
    def documented(x: Any) -> Any:
        """Its words."""
        return x

    assert (documented.__name__, documented.__doc__) == ("documented", "Its words.")
    assert isinstance(documented, hostcall.Callback)
    assert documented.name == "test_callback.documented"
    assert (documented.kind, documented.stateful) == ("numpy", False)
    said, unnamed = map(repr, (documented, hostcall.callback(np.sort, result=lambda x: x)))
    assert_says(said, "<hostcall.callback test_callback.documented of ", "test_callback.py")
    assert unnamed.startswith("<hostcall.callback of sort (")
    assert "  " not in said + unnamed


@each_mode
@pytest.mark.parametrize("name", ["plain", "with spaces", "a:b", "<x>", "_x", "é", "0"])
def test_any_name_will_do(mode: Any, name: str) -> None:
    named = hostcall.callback(lambda x: x, result=lambda x: x, name=f"test_callback {name}")
    np.testing.assert_array_equal(mode(lambda x: named(x))(X), X)


def test_a_name_is_one_of_a_kind_while_its_callback_lives() -> None:
    def make() -> Any:
        return hostcall.callback(lambda x: x, result=lambda x: x, name="test_callback.unique")

    first = make()
    with pytest.raises(ValueError, match=r"'test_callback\.unique' is registered already"):
        make()
    np.testing.assert_array_equal(jitted(first)(X), X)
    del first
    gc.collect()
    make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"kind": kind}, "is not one of") for kind in ("jax", "", None, "Numpy")),
        ({"kind": "eager", "stateful": False}, "an eager callback records its gradient"),
        *(({name: 3}, rf"hostcall\.callback: {name}=3 is no") for name in ("name", "grad")),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        hostcall.callback(lambda x: x, result=lambda x: x, **options)


@each_mode
@pytest.mark.parametrize("result", [[2, 3], lambda x: x.shape, lambda x: [x.shape] * 2, (None, 3)])
def test_a_result_without_a_dtype(mode: Any, result: Any) -> None:
    called = hostcall.callback(lambda x: x, result=result)
    with pytest.raises(TypeError, match="a result must say its dtype"):
        mode(lambda x: called(x))(X)


@each_mode
@pytest.mark.parametrize("dtype", [np.float32, float, np.dtype("float32"), tf.float32], ids=repr)
def test_a_result_that_is_a_dtype_alone(mode: Any, dtype: Any) -> None:
    for result in (dtype, [dtype], lambda x: dtype):
        called = hostcall.callback(lambda x: x, result=result)
        with pytest.raises(TypeError, match=r"must say its shape, and .* is a dtype alone"):
            mode(called)(X)


@each_mode
def test_a_rule_that_raises(mode: Any) -> None:
    called = hostcall.callback(lambda x: x, result=lambda x: x.no_such_attribute)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        mode(lambda x: called(x))(X)


@each_mode
@each_kind
def test_no_arguments_and_no_results(mode: Any, kind: Any) -> None:
    entries = []
    note = hostcall.callback(lambda: entries.append(1), result=[], kind=kind)
    mode(lambda: [note(), tf.constant(1)][1])()
    assert entries == [1]


def test_autograph_converts_nothing_of_hostcall(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[Any] = []
    convert = autograph_api._convert_actual

    def spy(entity: Any, *rest: Any) -> Any:
        converted.append(entity.__module__)
        return convert(entity, *rest)

    monkeypatch.setattr(autograph_api, "_convert_actual", spy)

    @tf.function
    def program(x: tf.Tensor) -> Any:
        spec = tf.TensorSpec([2, 3], tf.float32)
        doubled = hostcall.callback(lambda v: 2 * v, result=spec)
        squared = hostcall.callback(result=spec, kind="eager")(lambda v: v * v)
        halved = hostcall.declare(result=spec)(lambda v: v / 2)
        mapped = hostcall.map(np.negative, executor=pool)
        y = tf.numpy_function(halved, [doubled(x) + squared(x)], tf.float32)
        return tf.numpy_function(mapped, [y], tf.float32)

    pool = concurrent.futures.ThreadPoolExecutor(1)
    np.testing.assert_allclose(program(X), -(2 * X + X * X) / 2)
    assert converted
    assert not [module for module in converted if module.startswith("hostcall")]
