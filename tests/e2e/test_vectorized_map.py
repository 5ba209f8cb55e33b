"""`vmap_method=`: script ops in `tf.vectorized_map`, compared with calls for each element."""

import concurrent.futures
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support.helpers import MODES, each_mode, eagerly, gradient_of, like, plain

XS = tf.constant([[1.0, 2.0], [3.0, 5.0], [7.0, 4.0]])
W = tf.constant([10.0, 20.0])
OF_BATCHES = ("expand_dims", "broadcast_all")
METHODS = ("sequential", *OF_BATCHES)

each_method = pytest.mark.parametrize("method", METHODS)


class Noted:
    """A function that writes down the shapes that it is called with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.shapes: list[Any] = []

    def __call__(self, *arrays: Any) -> Any:
        self.shapes.append(tuple(tuple(array.shape) for array in arrays))
        return self.function(*arrays)


def one_by_one(function: Callable[..., Any], xs: Any = XS) -> np.ndarray:
    return np.stack([np.asarray(function(x)) for x in xs])


def shapes_for(method: str) -> list[Any]:
    """Return the shapes that a function of an element of XS and of W is called with."""
    expected: dict[str, list[Any]] = {
        "sequential": [((2,), (2,))] * 3,
        "expand_dims": [((3, 2), (1, 2))],
        "broadcast_all": [((3, 2), (3, 2))],
    }
    return expected[method]


def total_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of xs * call(x, w), as a function of xs and w."""
    return lambda args: tf.reduce_sum(
        tf.vectorized_map(lambda x: call(x, args[1]), args[0]) * args[0]
    )


@pytest.mark.parametrize("mode", [*MODES, eagerly])
@each_method
@pytest.mark.parametrize("stateful", [True, False])
def test_a_callback_is_called_once_or_for_each_element(
    mode: Any, method: str, stateful: bool
) -> None:
    noted = Noted(lambda x, w: np.cumsum(x, axis=-1) * w)
    call = hostcall.callback(noted, result=like, stateful=stateful, vmap_method=method)
    program = mode(lambda xs, w: tf.vectorized_map(lambda x: call(x, w) + 1.0, xs))
    expected = one_by_one(lambda x: np.cumsum(x) * W + 1)
    np.testing.assert_array_equal(program(XS, W), expected)
    assert noted.shapes == shapes_for(method)


@each_mode
@each_method
@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function, tf.compat.v1.py_func])
def test_the_stock_ops(mode: Any, method: str, op: Any) -> None:
    noted = scaled_by()
    hostcall.declare(noted, result=like, vmap_method=method)
    program = mode(lambda xs, w: tf.vectorized_map(lambda x: op(noted, [x, w], tf.float32), xs))
    np.testing.assert_array_equal(program(XS, W), XS * W)
    assert noted.shapes == shapes_for(method)


@each_mode
@each_method
def test_structures_and_shapes_that_follow_from_those_of_one_element(
    mode: Any, method: str
) -> None:
    def parts(given: dict[str, Any]) -> dict[str, Any]:
        x = given["x"]
        return {"largest": x.max(-1), "pairs": np.stack([x, -x], -1).astype(np.float64)}

    call = hostcall.callback(
        parts,
        result=lambda given: {
            "largest": tf.TensorSpec(given["x"].shape[:-1], tf.float32),
            "pairs": tf.TensorSpec([*given["x"].shape, 2], tf.float64),
        },
        vmap_method=method,
    )
    called = mode(lambda xs: tf.vectorized_map(lambda x: call({"x": x}), xs))(XS)
    np.testing.assert_array_equal(called["largest"], XS.numpy().max(-1))
    np.testing.assert_array_equal(called["pairs"], np.stack([XS, -XS], -1))
    assert called["pairs"].shape == (3, 2, 2)


@each_mode
@each_method
def test_one_map_in_another(mode: Any, method: str) -> None:
    noted = scaled_by()
    call = hostcall.callback(noted, result=like, vmap_method=method)

    def program(ws: Any) -> Any:
        return tf.vectorized_map(lambda w: tf.vectorized_map(lambda x: call(x, w), XS), ws)

    called = mode(program)(tf.stack([W, 2 * W]))
    np.testing.assert_array_equal(called, np.stack([XS * W, XS * 2 * W]))
    nested = {"expand_dims": [((1, 3, 2), (2, 1, 2))], "broadcast_all": [((2, 3, 2), (2, 3, 2))]}
    if method in nested:
        assert noted.shapes == nested[method]
    elif mode is plain:
        assert noted.shapes == [((2,), (2,))] * 6


@each_mode
@each_method
def test_the_gradient_of_a_mapped_py_function(mode: Any, method: str) -> None:
    noted = Noted(lambda x, w: x * x * w)
    hostcall.declare(noted, result=like, vmap_method=method)
    weights = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def program(xs: Any, w: Any) -> Any:
        def total(args: Any) -> Any:
            xs, w = args
            called = tf.vectorized_map(lambda x: tf.py_function(noted, [x, w], tf.float32), xs)
            return tf.reduce_sum(called * weights)

        return gradient_of(total, [xs, w])

    of_xs, of_w = mode(program)(XS, W)
    np.testing.assert_allclose(of_xs, 2 * XS * W * weights)
    np.testing.assert_allclose(of_w, tf.reduce_sum(XS * XS * weights, 0))
    assert noted.shapes == shapes_for(method)


@each_mode
@each_method
@pytest.mark.parametrize("kind", ["numpy", "eager"])
def test_the_gradient_of_a_mapped_callback_with_a_gradient_of_its_own(
    mode: Any, method: str, kind: str
) -> None:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        _, w = inputs
        return 3.0 * upstream * w, upstream * results / w  # 3 tells it from any other

    call = hostcall.callback(
        lambda x, w: x * w, result=like, kind=kind, grad=grad, vmap_method=method
    )

    of_xs, of_w = mode(lambda *args: gradient_of(total_of(call), [*args]))(XS, W)
    np.testing.assert_allclose(of_xs, 3 * XS * W + XS * W)
    np.testing.assert_allclose(of_w, tf.reduce_sum(XS * XS, 0))


@pytest.mark.cpu("XLA_CPU has no zeros of a TensorList in eager mode")
@each_method
def test_the_gradient_that_a_tape_outside_asks_for(method: str) -> None:
    back = Noted(lambda x: 2 * x)
    twice = hostcall.callback(back, result=like, vmap_method=method)
    call = hostcall.callback(
        lambda x: x * x, result=like, grad=lambda i, r, u: twice(i[0]) * u, vmap_method=method
    )
    gradient = gradient_of(lambda xs: tf.vectorized_map(call, xs), XS)
    np.testing.assert_allclose(gradient, 2 * XS)
    assert len(back.shapes) == (3 if method == "sequential" else 1)


@each_mode
@each_method
@pytest.mark.parametrize("pure", [False, True])
def test_gradients_of_each_element(mode: Any, method: str, pure: bool) -> None:
    """Also of an argument that is the same for all of them."""
    noted = Noted(lambda x, w: x * x * w)
    hostcall.declare(noted, result=like, vmap_method=method, pure=pure)

    def of_one(*args: Any) -> Any:
        return gradient_of(lambda args: tf.py_function(noted, args, tf.float32), args)

    of_xs, of_w = mode(lambda xs, w: tf.vectorized_map(lambda x: of_one(x, w), xs))(XS, W)
    np.testing.assert_allclose(of_xs, 2 * XS * W)
    np.testing.assert_allclose(of_w, XS * XS)
    calls = 2 if pure else 1
    assert len(noted.shapes) == (3 * calls if method == "sequential" else calls)


@each_mode
@pytest.mark.parametrize("method", [None, "sequential"])
def test_effects_happen_once_for_each_element_and_in_order(mode: Any, method: Any) -> None:
    log: list[float] = []

    def note(x: Any) -> None:
        log.append(float(x[0]))

    say = hostcall.callback(note, result=[], vmap_method=method)

    def program(xs: Any) -> Any:
        def one(x: Any) -> Any:
            say(x)  # nothing uses it
            say(-x)
            return 2.0 * x

        mapped = tf.vectorized_map(one, xs, warn=False)
        say(tf.constant([100.0]))
        return mapped

    np.testing.assert_array_equal(mode(program)(XS), 2 * XS)
    assert log == [1, 3, 7, -1, -3, -7, 100]


@each_mode
def test_effects_in_functions_that_are_called(mode: Any) -> None:
    log: list[float] = []
    say = hostcall.callback(lambda x: log.append(float(x[0])), result=[], vmap_method="sequential")

    @tf.function
    def inner(x: Any) -> Any:
        say(x)
        return x + 1.0

    np.testing.assert_array_equal(mode(lambda xs: tf.vectorized_map(inner, xs))(XS), XS + 1)
    assert log == [1, 3, 7]


@each_mode
def test_what_draws_is_called_for_each_element_though_its_arguments_are_the_same(mode: Any) -> None:
    calls: list[Any] = []

    def draw(x: Any) -> Any:
        calls.append(x)
        return np.float32(len(calls))

    hostcall.declare(draw, vmap_method="broadcast_all", result=tf.TensorSpec([], tf.float32))
    drawn = lambda _: tf.numpy_function(draw, [1.0], tf.float32)  # noqa: E731
    np.testing.assert_array_equal(mode(lambda xs: tf.vectorized_map(drawn, xs))(XS), [1, 2, 3])


@each_mode
def test_a_function_that_is_declared_pure_is_called_once_for_equal_arguments(mode: Any) -> None:
    noted = Noted(lambda w: w + 1)
    hostcall.declare(noted, result=like, memo=True)
    program = mode(lambda xs: tf.vectorized_map(
        lambda x: x * tf.numpy_function(noted, [W], tf.float32), xs))  # fmt: skip
    np.testing.assert_array_equal(program(XS), XS * (W + 1))
    assert noted.shapes == [((2,),)]


@each_mode
@each_method
def test_a_branch_that_some_elements_take(mode: Any, method: str) -> None:
    noted = Noted(lambda x: x * 10)
    call = hostcall.callback(noted, result=like, vmap_method=method)
    one = lambda x: tf.cond(x[0] > 2.0, lambda: call(x), lambda: x)  # noqa: E731
    called = mode(lambda xs: tf.vectorized_map(one, xs))(XS)
    np.testing.assert_array_equal(called, [[1, 2], [30, 50], [70, 40]])
    assert noted.shapes == ([((2,),)] * 2 if method == "sequential" else [((2, 2),)])


@each_mode
@each_method
def test_a_batch_without_elements(mode: Any, method: str) -> None:
    noted = Noted(lambda x: x)
    call = hostcall.callback(noted, result=like, vmap_method=method)
    assert mode(lambda xs: tf.vectorized_map(call, xs))(XS[:0]).shape == (0, 2)
    assert noted.shapes == ([] if method == "sequential" else [((0, 2),)])


@each_method
def test_a_batch_of_unknown_size(method: str) -> None:
    noted = Noted(lambda x: x * 2)
    call = hostcall.callback(noted, result=like, vmap_method=method)
    spec = [tf.TensorSpec([None, 2], tf.float32)]
    program = tf.function(lambda xs: tf.vectorized_map(call, xs), spec)
    for xs in (XS, XS[:2]):
        np.testing.assert_array_equal(program(xs), 2 * xs)


@each_mode
@pytest.mark.parametrize("option", [{"out": True}, {"borrow": True}, {"timeout": 60.0}])
def test_other_declarations_hold_for_the_batch(mode: Any, option: dict[str, Any]) -> None:
    def add(x: Any, w: Any, **out: Any) -> Any:
        return np.add(x, w, **out)

    call = hostcall.callback(add, result=like, vmap_method="expand_dims", **option)
    program = mode(lambda xs, w: tf.vectorized_map(lambda x: call(x, w), xs))
    np.testing.assert_array_equal(program(XS, W), XS + W)


def test_map_fn_and_loops_are_as_they_were() -> None:
    noted = Noted(lambda x: x * 2)
    call = hostcall.callback(noted, result=like, vmap_method="expand_dims")
    np.testing.assert_array_equal(tf.function(lambda xs: tf.map_fn(call, xs))(XS), 2 * XS)
    assert noted.shapes == [((2,),)] * 3


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
def test_undeclared_functions_loop_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted(lambda x: x * 2)
    call = lambda x: tf.numpy_function(noted, [x], tf.float32)  # noqa: E731
    with caplog.at_level("WARNING", "tensorflow"):
        np.testing.assert_array_equal(tf.vectorized_map(call, XS), 2 * XS)
        assert noted.shapes == [((2,),)] * 3
        [warning] = [r.message for r in caplog.records if "hostcall" in r.message]
        assert 'vmap_method="expand_dims"' in warning
        caplog.clear()
        tf.vectorized_map(call, XS, warn=False)
        hostcall.declare(noted, vmap_method="sequential")
        tf.vectorized_map(call, XS)
        assert not [r.message for r in caplog.records if "hostcall" in r.message]


def test_undeclared_functions_are_refused_where_loops_are() -> None:
    call = lambda x: tf.numpy_function(lambda x: x, [x], tf.float32)  # noqa: E731
    with pytest.raises(ValueError, match='vmap_method="expand_dims"'):
        tf.vectorized_map(call, XS, fallback_to_while_loop=False)


@each_mode
@pytest.mark.parametrize("wrong", [lambda x: x[0], lambda x: x.sum()], ids=["one", "none"])
def test_results_without_the_axis_of_the_batch(mode: Any, wrong: Any) -> None:
    declared = hostcall.callback(wrong, result=like, vmap_method="expand_dims")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(3, 2\)"):
        mode(lambda xs: tf.vectorized_map(declared, xs))(XS)
    hostcall.declare(wrong, vmap_method="expand_dims")
    stock = lambda x: tf.numpy_function(wrong, [x], tf.float32)  # noqa: E731
    with pytest.raises(tf.errors.InvalidArgumentError, match="one more axis in front"):
        mode(lambda xs: tf.vectorized_map(stock, xs))(XS)


def test_composite_tensors_have_no_axis_for_the_batch() -> None:
    function = lambda x: x  # noqa: E731
    hostcall.declare(function, vmap_method="expand_dims")
    sparse = tf.SparseTensorSpec([2], tf.float32)
    call = lambda x: tf.py_function(function, [tf.sparse.from_dense(x)], sparse).values  # noqa: E731
    with pytest.raises(ValueError, match="a ragged or sparse tensor has no axis for the batch"):
        tf.vectorized_map(call, XS)


def test_there_is_no_such_method() -> None:
    for make in (hostcall.declare, hostcall.callback):
        with pytest.raises(ValueError, match="vmap_method='all' is not one of"):
            make(lambda x: x, result=like, vmap_method="all")


@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
def test_while_hostcall_is_disabled_tensorflow_loops() -> None:
    noted = Noted(lambda x: x * 2)
    hostcall.declare(noted, vmap_method="expand_dims")
    hostcall.disable()
    try:
        call = lambda x: tf.numpy_function(noted, [x], tf.float32)  # noqa: E731
        np.testing.assert_array_equal(tf.vectorized_map(call, XS, warn=False), 2 * XS)
    finally:
        hostcall.enable()
    assert noted.shapes == [((2,),)] * 4  # once more for the body of the loop


# `vmap_method="map"`: a batch is divided among the workers of an executor.

ROWS = tf.reshape(tf.range(8.0), [4, 2])


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        yield executor


def scaled_by() -> Noted:
    return Noted(lambda x, w: x * w)


@each_mode
def test_each_worker_gets_a_part(mode: Any, pool: Any) -> None:
    scaled = scaled_by()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")
    program = mode(lambda xs, w: tf.vectorized_map(lambda x: call(x, w), xs))
    np.testing.assert_array_equal(program(ROWS, W), ROWS * W)
    assert scaled.shapes == [((2, 2), (1, 2))] * 2


@each_mode
def test_one_divided_map_in_another(mode: Any, pool: Any) -> None:
    scaled = scaled_by()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")

    def program(ws: Any) -> Any:
        return tf.vectorized_map(lambda w: tf.vectorized_map(lambda x: call(x, w), ROWS), ws)

    np.testing.assert_array_equal(mode(program)(tf.stack([W, 2 * W])), [ROWS * W, 2 * ROWS * W])
    assert scaled.shapes == [((1, 4, 2), (1, 1, 2))] * 2


@each_mode
def test_gradients_of_divided_maps(mode: Any, pool: Any) -> None:
    def grad(inputs: Any, _: Any, upstream: Any) -> Any:
        return call(upstream, inputs[1]), call(upstream, inputs[0])

    call = hostcall.callback(scaled_by(), result=like, executor=pool, vmap_method="map", grad=grad)
    of_xs, of_w = mode(lambda *args: gradient_of(total_of(call), [*args]))(ROWS, W)
    np.testing.assert_allclose(of_xs, 2 * ROWS * W)
    np.testing.assert_allclose(of_w, tf.reduce_sum(ROWS * ROWS, 0))


def test_from_jax(pool: Any) -> None:
    xs, w = jnp.asarray(ROWS.numpy()), jnp.asarray(W.numpy())
    scaled = scaled_by()
    call = hostcall.callback(scaled, result=like, executor=pool, vmap_method="map")
    program = jax.vmap(call, in_axes=(0, None))
    np.testing.assert_array_equal(jax.jit(program)(xs, w), ROWS * W)
    assert scaled.shapes == [((2, 2), (1, 2))] * 2

    def inner(x: Any, w: Any) -> Any:
        return hostcall.jax.call(scaled, x, x, w, executor=pool, pure=True, vmap_method="map")

    scaled.shapes.clear()
    nested = jax.vmap(jax.vmap(inner, in_axes=(0, None)), in_axes=(None, 0))
    np.testing.assert_array_equal(nested(xs, jnp.stack([w, 2 * w])), [ROWS * W, 2 * ROWS * W])
    assert scaled.shapes == [((1, 4, 2), (1, 1, 2))] * 2


def test_what_cannot_be_divided(pool: Any) -> None:
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.declare(lambda x: x, vmap_method="map")
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.jax.call(np.sin, W, W, pure=True, vmap_method="map")
    with pytest.raises(ValueError, match="its function tensors, which cannot be divided here"):
        hostcall.callback(lambda x: x, result=like, kind="eager", executor=pool, vmap_method="map")
