"""hostcall._functions.callback: arguments by keyword, and the function's defaults."""

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime._keyword_call import KeywordCall
from tests.support.helpers import assert_says, gradient_of, jitted, plain
from tests.support.memo import eagerly

X = tf.constant([1.0, 2.0, 3.0])


each_mode = pytest.mark.parametrize("mode", [eagerly, plain, jitted])
each_kind = pytest.mark.parametrize("kind", ["numpy", "eager"])


def noting(kind: Any = "numpy", **options: Any) -> tuple[Any, list[Any]]:
    """A callback, and what it was called with."""
    seen: list[Any] = []

    def scale(x: Any, sigma: Any = 2.0, *, mode: Any = "reflect") -> Any:
        seen.append((sigma, mode))
        return x * np.float32(sigma)

    made = hostcall.callback(scale, result=lambda x: x, kind=kind, **options)
    return made, seen


@pytest.mark.pairwise
@each_mode
@each_kind
@pytest.mark.parametrize(
    ("by_name", "expected"),
    [
        ({}, (2.0, "reflect")),
        ({"sigma": 3.0}, (3.0, "reflect")),
        ({"mode": "nearest"}, (2.0, "nearest")),
        ({"mode": None, "sigma": 4}, (4, None)),
        ({"mode": np.float32}, (2.0, np.float32)),
        ({"mode": [1, {"a": True}]}, (2.0, [1, {"a": True}])),
    ],
)
def test_what_is_no_tensor_is_passed(by_name: Any, expected: Any, kind: Any, mode: Any) -> None:
    scale, seen = noting(kind)
    result = mode(lambda x: scale(x, **by_name))(X)
    np.testing.assert_array_equal(result, X * float(expected[0]))
    assert seen == [expected]
    assert type(seen[0][0]) is type(expected[0])


@each_mode
@each_kind
def test_a_tensor_by_keyword_is_an_input(kind: Any, mode: Any) -> None:
    scale, seen = noting(kind)
    result = mode(lambda x: scale(sigma=tf.reduce_sum(x), x=x, mode=tf.size(x)))(X)
    np.testing.assert_array_equal(result, X * 6.0)
    ((sigma, third),) = seen
    assert (float(sigma), int(third)) == (6.0, 3)
    assert isinstance(sigma, tf.Tensor if kind == "eager" else np.floating)


@each_mode
def test_arrays_and_structures_with_tensors_are_inputs(mode: Any) -> None:
    @hostcall.callback(result=lambda x, **by_name: by_name["options"]["y"])
    def add(x: Any, options: Any, scale: Any) -> Any:
        return x + options["y"] * scale

    result = mode(lambda x: add(x, scale=np.float32(2.0), options={"y": x}))(X)
    np.testing.assert_array_equal(result, 3.0 * X)


@each_mode
def test_functions_that_take_any_arguments(mode: Any) -> None:
    seen = []

    @hostcall.callback(result=lambda *specs, **by_name: specs[0])
    def note(*arrays: Any, **by_name: Any) -> Any:
        seen.append((len(arrays), by_name))
        return arrays[0] + by_name.get("y", 0)

    np.testing.assert_array_equal(mode(lambda x: note(x, x, axis=1, y=x))(X), 2.0 * X)
    ((count, by_name),) = seen
    assert count == 2
    assert by_name.pop("y").tolist() == [1.0, 2.0, 3.0]
    assert by_name == {"axis": 1}


@each_mode
def test_the_shape_function_takes_the_same_arguments(mode: Any) -> None:
    seen = []

    def shape(x: Any, count: int, axis: int) -> tf.TensorSpec:
        seen.append((count, axis))
        return tf.TensorSpec([count, *x.shape], x.dtype)

    @hostcall.callback(result=shape)
    def repeated(x: Any, count: int = 2, *, axis: int = 0, unknown_to_shape: int = 1) -> Any:
        return np.stack([x] * count, axis)

    assert mode(lambda x: repeated(x, unknown_to_shape=2))(X).shape == (2, 3)
    assert mode(lambda x: repeated(x, count=4))(X).shape == (4, 3)
    assert {*seen} == {(2, 0), (4, 0)}


@each_mode
def test_the_shape_function_takes_specs_of_tensors(mode: Any) -> None:
    @hostcall.callback(result=lambda y, x: tf.TensorSpec([*x.shape, *y.shape], x.dtype))
    def outer(*, x: Any, y: Any) -> Any:
        return np.outer(x, y)

    assert mode(lambda x: outer(y=x[:2], x=x))(X).shape == (3, 2)


@each_mode
def test_the_gradient_takes_what_it_names(mode: Any) -> None:
    def gradient(inputs: Any, results: Any, upstream: Any, sigma: float, y: Any = None) -> Any:
        assert y in (None, 0.0)  # a tensor is among the inputs
        return [upstream * sigma, *(upstream for _ in inputs[1:])]

    @hostcall.callback(result=lambda x: x, grad=gradient)
    def scaled(x: Any, sigma: float = 2.0, *, y: Any = 0.0) -> Any:
        return x * np.float32(sigma) + y

    def program(x: Any) -> Any:
        return scaled(x) + scaled(x, sigma=3.0) + scaled(x, y=x)

    gradients = mode(lambda x: gradient_of(program, x))(X)
    np.testing.assert_array_equal(gradients, [8.0, 8.0, 8.0])


@each_mode
def test_methods(mode: Any) -> None:
    class Model:
        @hostcall.callback(result=lambda x: x)
        def scaled(self, x: Any, factor: float = 2.0) -> Any:
            return x * np.float32(factor)

    model = Model()
    assert str(inspect.signature(model.scaled)) == "(x: Any, factor: float = 2.0) -> Any"
    result = mode(lambda x: model.scaled(x) + model.scaled(factor=3.0, x=x))(X)
    np.testing.assert_array_equal(result, 5.0 * X)


@each_mode
@pytest.mark.parametrize("borrow", [True, False])
def test_functions_that_write_their_results(borrow: bool, mode: Any) -> None:
    @hostcall.callback(result=lambda x: x, out=True, borrow=borrow)
    def scaled(x: Any, factor: float = 2.0, out: Any = None) -> None:
        np.multiply(x, np.float32(factor), out=out)

    result = mode(lambda x: scaled(x) + scaled(x, factor=3.0))(X)
    np.testing.assert_array_equal(result, 5.0 * X)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'out'"):
        scaled(X, out=np.zeros(3))


@each_mode
def test_results_are_kept_for_each_value(mode: Any) -> None:
    scale, seen = noting(stateful=False, memo=True)

    def program(x: Any) -> Any:
        return scale(x) + scale(x, sigma=3.0) + scale(x, sigma=3.0) + scale(x, sigma=3)

    np.testing.assert_array_equal(mode(program)(X + 0.0), 11.0 * X)
    np.testing.assert_array_equal(mode(program)(X + 0.0), 11.0 * X)
    assert sorted(map(repr, seen)) == ["(2.0, 'reflect')", "(3, 'reflect')", "(3.0, 'reflect')"]


def test_a_list_that_is_changed_after_the_call_is_as_it_was() -> None:
    scale, seen = noting()
    weights = [1]
    program = tf.function(lambda x: scale(x, mode=weights))
    program(X)
    weights.append(2)
    program(X)
    assert [mode for _, mode in seen] == [[1], [1]]


SIGNATURE = "(x: Any, sigma: Any = 2.0, *, mode: Any = 'reflect') -> Any"


@pytest.mark.parametrize(
    ("args", "by_name", "message"),
    [
        ((X,), {"sgima": 3.0}, "got an unexpected keyword argument 'sgima'"),
        ((X,), {"x": X}, "multiple values for argument 'x'"),
        ((), {"sigma": 3.0}, "missing a required argument: 'x'"),
        ((X, 2.0, 3.0), {"mode": ""}, "too many positional arguments"),
    ],
)
def test_arguments_that_the_function_does_not_take(args: Any, by_name: Any, message: str) -> None:
    scale, _ = noting()
    assert str(inspect.signature(scale)) == SIGNATURE
    with pytest.raises(TypeError, match=message) as caught:
        scale(*args, **by_name)
    said = f"takes {SIGNATURE.removesuffix(' -> Any')}"
    assert_says(caught.value, "The function is noting.<locals>.scale", "test_keywords.py:", said)
    with pytest.raises(
        ValueError, match=r"None, which is passed by position(?s:.*)Pass by keyword what"
    ):
        scale(X, None)


def test_errors_of_gradients_show_no_frames_of_hostcall() -> None:
    def fail(inputs: Any, results: Any, upstream: Any, sigma: float) -> Any:
        raise KeyError(sigma)

    scale, _ = noting(grad=fail)
    with pytest.raises(KeyError) as caught:
        tf.function(lambda x: gradient_of(scale, x))(X)
    assert "in fail" in str(caught.value)
    assert "_keyword_call.py" not in str(caught.value)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("function", [np.negative, np.add])
def test_a_function_of_numpys_can_be_traced_itself(function: Any, jit_compile: bool) -> None:
    """`tf.function` passes all the defaults of what it traces."""
    called, inputs = hostcall.callback(function, result=lambda *x: x[0]), [X] * function.nin
    traced = tf.function(called, jit_compile=jit_compile)
    np.testing.assert_array_equal(traced(*inputs), function(*inputs))
    np.testing.assert_array_equal(called(*inputs, dtype=np.float32), function(*inputs))


def _plus_one(v: Any) -> Any:
    return v + 1


def described(
    x: Any, how: Any = "sum", n: Any = 3, w: Any = None, *, k: Any = 0.1, t: Any = (1, "a")
) -> str:
    return f"{np.sum(x)} {how!r} {n!r} {w!r} {k!r} {t!r}"


each_trace = pytest.mark.parametrize(
    "trace",
    [
        lambda f: tf.function(f),
        lambda f: tf.function(f, jit_compile=True),
        lambda f: tf.function(f, autograph=False),
        lambda f: tf.function(f, reduce_retracing=True),
        lambda f: lambda *args, **named: tf.function(f).get_concrete_function(*args, **named)(X),
    ],
    ids=["plain", "jit", "no autograph", "retracing", "concrete"],
)


@each_trace
@pytest.mark.parametrize(
    ("args", "by_name"),
    [
        ((), {}),
        ((), {"how": "max"}),
        (("max",), {}),
        ((None, 4), {}),
        (("sum", 3, None), {}),
        (("max",), {"n": (1, 2), "k": False}),
        ((), {"n": 0.1, "w": [1, "b"], "t": ()}),
        ((_plus_one, True, {"a": 1}), {}),
        ((), {"w": b"bytes"}),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_callback_that_is_traced_itself_gets_values_of_python(
    args: Any, by_name: Any, trace: Any
) -> None:
    seen: list[str] = []

    def note(*given: Any, **named: Any) -> Any:
        seen.append(described(*given, **named))
        return np.float32(0)

    note.__signature__ = inspect.signature(described)  # type: ignore[attr-defined]
    for result in (tf.TensorSpec([], tf.float32), lambda x: tf.TensorSpec([], x.dtype)):
        callback = hostcall.callback(note, result=result, stateful=False)
        trace(callback)(X, *args, **by_name)
    assert seen == [described(X.numpy(), *args, **by_name)] * 2


@each_mode
def test_tensors_after_a_default_are_inputs(mode: Any) -> None:
    seen: list[Any] = []

    def function(x: Any, how: Any = "sum", w: Any = 1.0, v: Any = None) -> Any:
        seen.append((how, type(w), v))
        return x * w

    callback = hostcall.callback(
        function,
        result=lambda x, **_: x,
        stateful=False,
        grad=lambda inputs, results, upstream: [upstream * value for value in reversed(inputs)],
    )
    x, w = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    program = mode(callback)
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        result = program(x, w=w)
    np.testing.assert_array_equal(result, x * w)
    gradients = tape.gradient(result, [x, w])
    np.testing.assert_array_equal(gradients, [w, x])
    np.testing.assert_array_equal(program(x), x)
    np.testing.assert_array_equal(program(x, how="max", w=w), x * w)
    assert seen[0] == ("sum", np.ndarray, None)
    assert seen[1] == ("sum", float, None)


@each_trace
def test_defaults_of_methods_and_of_positional_parameters(trace: Any) -> None:
    seen: list[Any] = []

    class Model:
        @hostcall.callback(result=lambda x: x, stateful=False)
        def method(self, x: Any, how: Any = "sum", n: Any = 2) -> Any:
            seen.append((how, n))
            return x

    @hostcall.callback(result=lambda x: x, stateful=False)
    def positional(x: Any, how: Any = "sum", n: Any = 2, /) -> Any:
        seen.append((how, n))
        return x

    trace(Model().method)(X)
    trace(Model().method)(X, n=3)
    trace(positional)(X)
    assert seen == [("sum", 2), ("sum", 3), ("sum", 2)]


def test_a_function_that_calls_it_passes_numbers_as_tensors() -> None:
    seen: list[Any] = []

    @hostcall.callback(result=lambda x, n=1: x, stateful=False)
    def noted(x: Any, n: Any = 1) -> Any:
        seen.append(type(n))
        return x

    for mode in (eagerly, plain, jitted):
        mode(lambda x: noted(x, 3))(X)
    assert all(issubclass(kind, np.ndarray | np.generic) for kind in seen)


@each_mode
@pytest.mark.parametrize("pure", [True, False])
def test_gradients_of_eager_callbacks_are_those_of_the_call(pure: bool, mode: Any) -> None:
    @hostcall.callback(result=lambda x: x, kind="eager", pure=pure)
    def power(x: Any, exponent: float = 2.0, *, scale: Any = 1.0) -> Any:
        return scale * x**exponent

    def program(x: Any) -> Any:
        return power(x) + power(x, exponent=3.0) + power(x, scale=x)

    gradients = mode(lambda x: gradient_of(program, x))(X)
    np.testing.assert_allclose(gradients, 2 * X + 3 * X**2 + 3 * X**2)


@pytest.mark.parametrize("mode", [eagerly, plain])
def test_composite_tensors_and_variables(mode: Any) -> None:
    @hostcall.callback(result=tf.TensorSpec([], tf.float32), kind="eager")
    def total(*, rows: Any, scale: Any) -> Any:
        assert isinstance(rows, tf.RaggedTensor)
        return tf.reduce_sum(rows.flat_values) * scale

    rows, scale = tf.ragged.constant([[1.0], [2.0, 3.0]]), tf.Variable(2.0)
    assert mode(lambda: total(scale=scale, rows=rows))() == 12.0


# Which calls are the same, and how functions are called.


def function(x: Any, y: Any = 1, *, z: Any = 2) -> Any:
    return x, y, z


def test_the_last_arguments_are_passed_by_name() -> None:
    assert KeywordCall(function, ("z",), {"y": 5})(0, 7) == (0, 5, 7)
    assert KeywordCall(function, (None, "y"))(0, 6, 7) == (0, 7, 2)
    assert KeywordCall(function)(0, z=3) == (0, 1, 3)


@pytest.mark.parametrize(
    "value", [None, True, 1, 1.0, -0.0, float("nan"), "a", b"a", (1, [2]), {"a": [1]}, len]
)
def test_equal_values_are_the_same_call(value: Any) -> None:
    first, second = (KeywordCall(function, ("z",), {"y": value}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("value", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), ([1], [1.0]), ({"a": 1}, {"b": 1}), ({1}, {1})],
)
def test_other_values_and_functions_are_another_call(value: Any, other: Any) -> None:
    assert KeywordCall(function, (), {"y": value}) != KeywordCall(function, (), {"y": other})
    assert KeywordCall(function) not in (KeywordCall(len), KeywordCall(function, ("z",)), function)


def test_the_signature_is_that_of_what_is_left() -> None:
    assert str(inspect.signature(KeywordCall(function, (), {"y": 1}))) == "(x: Any, *, z: Any)"
    assert str(inspect.signature(KeywordCall(function, ("z",)))) == "(x: Any, z)"
