"""`vmap_method=`: script ops in `tf.vectorized_map`, compared with calls for each element."""

import concurrent.futures
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from tests.support.helpers import MODES, PUBLIC_OPS, each_mode, eagerly, gradient_of, like, plain

XS = tf.constant([[1.0, 2.0], [3.0, 5.0], [7.0, 4.0]])
ROWS = tf.reshape(tf.range(8.0), [4, 2])
W = tf.constant([10.0, 20.0])
OF_BATCHES = ("expand_dims", "broadcast_all")
METHODS = ("sequential", *OF_BATCHES)

each_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        yield executor


class Noted:
    """A function that writes down the shapes that it is called with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.shapes: list[Any] = []

    def __call__(self, *arrays: Any, **out: Any) -> Any:
        self.shapes.append(tuple(tuple(array.shape) for array in arrays))
        return self.function(*arrays, **out)


def shapes_for(method: Any) -> list[Any]:
    """Return the shapes that a function of an element of XS and of W is called with."""
    of_one: list[Any] = [((2,), (2,))]
    of_batch = [((3, 2), (1, 2) if method == "expand_dims" else (3, 2))]
    return of_one * 3 if method == "sequential" else of_batch


def scaled_by() -> Noted:
    return Noted(lambda x, w: x * w)


def mapped(call: Callable[..., Any]) -> Callable[..., Any]:
    """The map of call(x, w) over the elements of xs, as a function of xs and w."""
    return lambda xs, w: tf.vectorized_map(lambda x: call(x, w), xs)


def total_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of xs * call(x, w), as a function of xs and w."""
    return lambda args: tf.reduce_sum(mapped(call)(*args) * args[0])


def by_op(op: Any) -> Any:
    def make(function: Any, **declared: Any) -> Any:
        hostcall.declare(function, **declared)
        return lambda *args: op(function, args, tf.float32)

    return make


MAKERS = {
    "a callback": hostcall.callback,
    "a stateless callback": functools.partial(hostcall.callback, stateful=False),
    **{op.__name__: by_op(op) for op in PUBLIC_OPS},
}


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", [*MODES, eagerly])
@each_method
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_callback_is_called_once_or_for_each_element(mode: Any, method: Any, make: Any) -> None:
    noted = Noted(lambda x, w: np.cumsum(x, axis=-1) * w)
    call = make(noted, result=like, vmap_method=method)
    program = mode(mapped(lambda x, w: call(x, w) + 1.0))
    np.testing.assert_array_equal(program(XS, W), tf.cumsum(XS, axis=-1) * W + 1.0)
    assert noted.shapes == shapes_for(method)


@each_mode
@each_method
def test_structures_and_shapes_that_follow_from_those_of_one_element(
    mode: Any, method: Any
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
@pytest.mark.parametrize("method", [*METHODS, "map"])
def test_one_map_in_another(mode: Any, method: Any, pool: Any) -> None:
    noted = scaled_by()
    executor = pool if method == "map" else None
    call = hostcall.callback(noted, result=like, executor=executor, vmap_method=method)
    program = mode(lambda ws: tf.vectorized_map(lambda w: mapped(call)(ROWS, w), ws))
    np.testing.assert_array_equal(program(tf.stack([W, 2 * W])), [ROWS * W, ROWS * 2 * W])
    shapes = {
        "expand_dims": [((1, 4, 2), (2, 1, 2))],
        "broadcast_all": [((2, 4, 2), (2, 4, 2))],
        "map": [((1, 4, 2), (1, 1, 2))] * 2,
        "sequential": [((2,), (2,))] * 8,
    }
    if method != "sequential" or mode is plain:
        assert noted.shapes == shapes[method]


@each_mode
@each_method
def test_the_gradient_of_a_mapped_py_function(mode: Any, method: Any) -> None:
    noted = Noted(lambda x, w: x * x * w)
    hostcall.declare(noted, result=like, vmap_method=method)
    weights = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    called = mapped(lambda *args: tf.py_function(noted, args, tf.float32))

    def total(args: Any) -> Any:
        return tf.reduce_sum(called(*args) * weights)

    of_xs, of_w = mode(lambda *args: gradient_of(total, [*args]))(XS, W)
    np.testing.assert_allclose(of_xs, 2 * XS * W * weights)
    np.testing.assert_allclose(of_w, tf.reduce_sum(XS * XS * weights, 0))
    assert noted.shapes == shapes_for(method)


@each_mode
@each_method
@pytest.mark.parametrize("kind", ["numpy", "eager"])
def test_the_gradient_of_a_mapped_callback_with_a_gradient_of_its_own(
    mode: Any, method: Any, kind: Any
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
def test_the_gradient_that_a_tape_outside_asks_for(method: Any) -> None:
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
def test_gradients_of_each_element(mode: Any, method: Any, pure: bool) -> None:
    """Also of an argument that is the same for all of them."""
    noted = Noted(lambda x, w: x * x * w)
    hostcall.declare(noted, result=like, vmap_method=method, pure=pure)

    def of_one(*args: Any) -> Any:
        return gradient_of(lambda args: tf.py_function(noted, args, tf.float32), args)

    of_xs, of_w = mode(mapped(of_one))(XS, W)
    np.testing.assert_allclose(of_xs, 2 * XS * W)
    np.testing.assert_allclose(of_w, XS * XS)
    calls = 2 if pure else 1
    assert len(noted.shapes) == (3 * calls if method == "sequential" else calls)


@each_mode
@pytest.mark.parametrize("method", [None, "sequential"])
@pytest.mark.parametrize("called", [eagerly, tf.function])
def test_effects_happen_once_for_each_element_and_in_order(
    mode: Any, method: Any, called: Any
) -> None:
    log: list[float] = []
    say = hostcall.callback(lambda x: log.append(float(x[0])), result=[], vmap_method=method)

    def program(xs: Any) -> Any:
        @called
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
def test_a_branch_that_some_elements_take(mode: Any, method: Any) -> None:
    noted = Noted(lambda x: x * 10)
    call = hostcall.callback(noted, result=like, vmap_method=method)
    one = lambda x: tf.cond(x[0] > 2.0, lambda: call(x), lambda: x)  # noqa: E731
    called = mode(lambda xs: tf.vectorized_map(one, xs))(XS)
    np.testing.assert_array_equal(called, [[1, 2], [30, 50], [70, 40]])
    assert noted.shapes == ([((2,),)] * 2 if method == "sequential" else [((2, 2),)])


@each_mode
@each_method
def test_a_batch_without_elements_and_of_unknown_size(mode: Any, method: Any) -> None:
    noted = Noted(lambda x: x * 2)
    call = hostcall.callback(noted, result=like, vmap_method=method)
    assert mode(lambda xs: tf.vectorized_map(call, xs))(XS[:0]).shape == (0, 2)
    assert noted.shapes == ([] if method == "sequential" else [((0, 2),)])
    spec = [tf.TensorSpec([None, 2], tf.float32)]
    program = tf.function(lambda xs: tf.vectorized_map(call, xs), spec)
    for xs in (XS, XS[:2]):
        np.testing.assert_array_equal(program(xs), 2 * xs)


@each_mode
@pytest.mark.parametrize("option", ["out", "borrow", "timeout", "executor"])
def test_other_declarations_hold_for_the_batch(mode: Any, option: str, pool: Any) -> None:
    """With an executor, each worker gets a part."""
    values = {"out": True, "borrow": True, "timeout": 60.0, "executor": pool}
    method = "map" if option == "executor" else "expand_dims"
    noted = Noted(lambda x, w, **out: np.multiply(x, w, **out))
    options = {option: values[option], "vmap_method": method}
    call = hostcall.callback(noted, result=like, **options)
    np.testing.assert_array_equal(mode(mapped(call))(ROWS, W), ROWS * W)
    parts = [((2, 2), (1, 2))] * 2 if option == "executor" else [((4, 2), (1, 2))]
    assert noted.shapes == parts


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


@pytest.mark.usefixtures("enabled_again")
@pytest.mark.cpu("XLA compiles plain functions on XLA_CPU")
def test_map_fn_loops_and_so_does_tensorflow_while_hostcall_is_disabled() -> None:
    noted = Noted(lambda x: x * 2)
    hostcall.declare(noted, vmap_method="expand_dims")
    call = lambda x: tf.numpy_function(noted, [x], tf.float32)  # noqa: E731
    np.testing.assert_array_equal(tf.function(lambda xs: tf.map_fn(call, xs))(XS), 2 * XS)
    assert noted.shapes == [((2,),)] * 3
    noted.shapes.clear()
    hostcall.disable()
    np.testing.assert_array_equal(tf.vectorized_map(call, XS, warn=False), 2 * XS)
    assert noted.shapes == [((2,),)] * 4  # once more for the body of the loop


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


def test_what_is_refused(pool: Any) -> None:
    undeclared = lambda x: tf.numpy_function(lambda x: x, [x], tf.float32)  # noqa: E731
    with pytest.raises(ValueError, match='vmap_method="expand_dims"'):
        tf.vectorized_map(undeclared, XS, fallback_to_while_loop=False)
    makers: tuple[Any, ...] = (hostcall.declare, hostcall.callback)
    for make in makers:
        with pytest.raises(ValueError, match="vmap_method='all' is not one of"):
            make(lambda x: x, result=like, vmap_method="all")
    function = lambda x: x  # noqa: E731
    hostcall.declare(function, vmap_method="expand_dims")
    sparse = tf.SparseTensorSpec([2], tf.float32)
    call = lambda x: tf.py_function(function, [tf.sparse.from_dense(x)], sparse).values  # noqa: E731
    with pytest.raises(ValueError, match="a ragged or sparse tensor has no axis for the batch"):
        tf.vectorized_map(call, XS)
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.declare(lambda x: x, vmap_method="map")
    with pytest.raises(ValueError, match="divides a batch among the workers of an executor"):
        hostcall.jax.call(np.sin, W, W, pure=True, vmap_method="map")
    with pytest.raises(ValueError, match="its function tensors, which cannot be divided here"):
        hostcall.callback(lambda x: x, result=like, kind="eager", executor=pool, vmap_method="map")


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
