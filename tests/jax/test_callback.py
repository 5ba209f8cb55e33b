"""hostcall.callback: one object, called from TensorFlow and from JAX."""

import collections
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import assert_same, jitted, like
from tests.support.jax.helpers import X, each_mode, noting_shapes

Point = collections.namedtuple("Point", ["x", "y"])


@hostcall.callback(result=lambda x, y: {"sum": tf.TensorSpec(x.shape, x.dtype), "n": y["n"]})
def summed(x: Any, y: Any) -> Any:
    return {"sum": x + y["k"], "n": y["n"] + np.int32(1)}


@each_mode
def test_the_same_from_both(mode: Any) -> None:
    def program(x: Any) -> Any:
        return summed(x, {"k": x * 2, "n": np.int32(3)})

    from_jax = mode(program)(X)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(from_jax))
    for tf_mode in (tf.function, jitted, lambda f: f):
        from_tf = tf_mode(program)(tf.constant(np.asarray(X)))
        assert all(isinstance(leaf, tf.Tensor) for leaf in from_tf.values())
        assert_same({key: np.asarray(value) for key, value in from_jax.items()}, from_tf)


def test_results_in_every_structure() -> None:
    spec = tf.TensorSpec([], tf.float32)
    one, two = np.float32(1), np.float32(2)
    for declared, returned in [
        (spec, one),
        ([spec], (one,)),
        ((spec, spec), [one, two]),
        (Point(spec, spec), Point(one, two)),
        ([], None),
    ]:
        called = hostcall.callback(lambda r=returned: r, result=declared)
        result = jax.jit(lambda called=called: called())()
        assert jax.tree.structure(result) == jax.tree.structure(declared)
        assert jax.tree.leaves(result) == jax.tree.leaves(returned)


def test_without_arguments_it_runs_when_the_program_does() -> None:
    counts: list[int] = []

    @hostcall.callback(result=tf.TensorSpec([], tf.int32))
    def count() -> Any:
        counts.append(len(counts))
        return np.int32(counts[-1])

    program = jax.jit(lambda: count())
    assert [int(program()) for _ in range(3)] == [0, 1, 2]
    # As outside of all programs.
    assert int(count()) == 3


def test_ordered_calls_of_a_batch_with_results_are_refused() -> None:
    method: Any
    for method, text in (
        (None, "stateful=False of a hostcall"),
        ("sequential", "one call for the batch"),
    ):
        negative = hostcall.callback(lambda x: -x, result=lambda x: x, vmap_method=method)
        with pytest.raises(ValueError, match=text):
            jax.vmap(negative)(X)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(
    ("method", "shapes"), [("expand_dims", ((4,), (1,))), ("broadcast_all", ((4,), (4,)))]
)
def test_one_call_for_a_batch(method: Any, shapes: Any, stateful: bool) -> None:
    scaled, calls = noting_shapes(lambda x, y: x * y)
    call = hostcall.callback(
        scaled,
        result=lambda x, y: tf.TensorSpec(x.shape, x.dtype),
        stateful=stateful,
        vmap_method=method,
        grad=lambda inputs, _, upstream: (upstream * inputs[1], upstream * inputs[0]),
    )
    batched = jax.jit(jax.vmap(call, in_axes=(0, None)))
    np.testing.assert_array_equal(batched(X, 2.0), 2 * X)
    assert calls == [shapes]
    gradient = jax.vmap(jax.grad(call, argnums=1), in_axes=(0, None))(X, 2.0)
    np.testing.assert_array_equal(gradient, X)
    assert calls == [shapes] * 2


def test_stateless_calls_are_pure() -> None:
    noted, calls = noting_shapes(np.cos)
    cos = hostcall.callback(noted, result=lambda x: x, stateful=False)
    jax.jit(lambda x: [cos(x), x][1])(X).block_until_ready()
    assert calls == []
    np.testing.assert_array_equal(jax.vmap(cos)(X), np.cos(X))
    assert calls == [((),)] * 4


@each_mode
def test_a_method(mode: Any) -> None:
    class Scaled:
        scale = np.float32(3)

        @hostcall.callback(result=lambda x: tf.TensorSpec(x.shape, x.dtype))
        def scaled(self, x: Any) -> Any:
            return self.scale * x

    np.testing.assert_array_equal(mode(Scaled().scaled)(X), 3 * X)


@each_mode
def test_gradients_of_both(mode: Any) -> None:
    def square_gradient(inputs: Any, results: Any, upstream: Any) -> Any:
        return 2 * inputs[0] * upstream, None

    @hostcall.callback(result=lambda inputs, *_: [like(inputs[0]), like(inputs[1])])
    def product_gradient(inputs: Any, results: Any, upstream: Any) -> Any:
        return [inputs[1] * upstream, inputs[0] * upstream]

    square = hostcall.callback(lambda x, n: x * x, result=like, grad=square_gradient)
    product = hostcall.callback(lambda x, y: x * y, result=like, grad=product_gradient)

    def loss(x: Any) -> Any:
        return (square(x, 3) + product(x, x + 1)).sum()

    np.testing.assert_allclose(mode(jax.grad(loss))(X), 4 * X + 1)
    np.testing.assert_array_equal(mode(loss)(X), (2 * X * X + X).sum())


def test_a_gradient_in_tensorflow() -> None:
    def grad(inputs: Any, results: Any, upstream: Any) -> Any:
        return tf.cos(inputs[0]) * upstream

    sin = hostcall.callback(np.sin, result=lambda x: tf.TensorSpec(x.shape, x.dtype), grad=grad)
    for differentiated in (
        jax.grad(lambda x: sin(x).sum()),
        jax.jit(jax.grad(lambda x: sin(x)[0])),
    ):
        with pytest.raises(TypeError, match="is TensorFlow code, and it is asked for in JAX"):
            differentiated(X)


def test_a_gradient_of_another_shape_names_the_function() -> None:
    grad = lambda inputs, results, upstream: upstream[0]  # noqa: E731
    wrong = hostcall.callback(lambda x: x, result=lambda x: x, grad=grad)
    line = grad.__code__.co_firstlineno
    said = rf"{Path(__file__).name}:{line}\), returned a gradient of float32\(\) for input 0"
    with pytest.raises(ValueError, match=said):
        jax.grad(lambda x: wrong(x).sum())(X)


def test_the_wrong_number_of_gradients() -> None:
    spec = tf.TensorSpec([4], tf.float32)
    sin = hostcall.callback(np.sin, result=spec, grad=lambda inputs, results, upstream: [1, 2])
    with pytest.raises(ValueError, match="2 gradients for 1 argument\\."):
        jax.grad(lambda x: sin(x).sum())(X)


@each_mode
def test_declarations_hold(mode: Any) -> None:
    calls = []

    def add(x: Any, out: Any) -> None:
        calls.append(x.shape)
        np.add(x, 1, out=out)

    np.testing.assert_array_equal(mode(hostcall.callback(add, result=like, out=True))(X), X + 1)
    borrowing = hostcall.callback(lambda x: x.copy(), result=like, borrow=True)
    np.testing.assert_array_equal(mode(borrowing)(X), X)
    remembering = hostcall.callback(
        lambda x: [calls.append(x), x * 2][1], result=like, stateful=False, memo=True
    )
    program = mode(lambda x: remembering(x))
    for _ in range(3):
        np.testing.assert_array_equal(program(X), 2 * X)
    assert len(calls) == 2


def test_what_jax_cannot_have() -> None:
    eager = hostcall.callback(lambda x: x, result=tf.TensorSpec([4], tf.float32), kind="eager")
    with pytest.raises(TypeError, match=r"takes TensorFlow's tensors, and .*JAX's arrays"):
        eager(X)
    bounded = hostcall.callback(np.unique, result=hostcall.BoundedSpec([4], tf.float32))
    with pytest.raises(ValueError, match=r"the BoundedSpec .* and JAX has no arrays"):
        jax.jit(bounded)(X)
    unknown = hostcall.callback(np.unique, result=tf.TensorSpec([None], tf.float32))
    with pytest.raises(ValueError, match="JAX needs every size"):
        unknown(X)
    wide = hostcall.callback(np.sum, result=tf.TensorSpec([], tf.float64))
    with pytest.raises(ValueError, match="float64, which JAX only has with jax_enable_x64"):
        wide(X)


def test_both_frameworks_at_once() -> None:
    add = hostcall.callback(np.add, result=lambda x, y: tf.TensorSpec(x.shape, x.dtype))
    tensor = tf.constant(np.asarray(X))
    with pytest.raises(TypeError, match="some arguments are TensorFlow's tensors"):
        jax.jit(lambda x: add(x, tensor))(X)
    assert isinstance(add(tensor, X), tf.Tensor)
    np.testing.assert_array_equal(add(tensor, jnp.ones(4)), X + 1)
