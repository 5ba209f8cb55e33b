"""hostcall.jax.from_tf: TensorFlow functions with script ops in JAX programs."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
from tests.support.helpers import DetailedError, assert_same, raising
from tests.support.jax.helpers import X, each_mode, failure, struct
from tests.support.versions import reads_programs_of_jax

from_tf = hostcall.jax.from_tf
each_compilation = pytest.mark.parametrize("jit_compile", [True, False])


def numpy_op(function: Any, x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(function, [x], x.dtype), x.shape)


def sin(x: Any) -> Any:
    return tf.ensure_shape(tf.py_function(tf.sin, [x], x.dtype), x.shape)


@each_mode
@each_compilation
def test_structures(mode: Any, jit_compile: bool) -> None:
    @tf.function(jit_compile=jit_compile)
    def function(x: Any, more: Any) -> Any:
        return {"cos": numpy_op(np.cos, x), "rest": (more["n"] + 1, [x[0]])}

    called = mode(from_tf(function))(X, {"n": jnp.int32(3)})
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(called))
    assert_same(called, {"cos": np.cos(X), "rest": (np.int32(4), [X[0]])})


@pytest.mark.parametrize(
    "dtype",
    [
        ml_dtypes.int4,
        ml_dtypes.uint4,
        pytest.param(
            ml_dtypes.int2, marks=pytest.mark.tensorflow("2.21", "TensorFlow has them from then on")
        ),
    ],
)
@each_mode
@each_compilation
def test_integers_of_less_than_a_byte(mode: Any, jit_compile: bool, dtype: Any) -> None:
    @tf.function(jit_compile=jit_compile)
    def function(x: Any) -> Any:
        return x, numpy_op(lambda v: v[::-1], x)

    x = jnp.asarray(np.array([1, 0, 1, -2, -1, 0, 1], np.int8).astype(dtype))
    assert_same(mode(from_tf(function))(x), (x, x[::-1]))


def test_four_bits_that_stock_tensorflow_compiles_are_an_error() -> None:
    x = jnp.asarray(np.array([1, 2, 3], ml_dtypes.int4))
    same = tf.function(lambda x: tf.identity(x), jit_compile=True)
    for function in (same, tf.function(lambda x: same(x))):
        with pytest.raises(ValueError, match="would hand over its int4 to XLA wrongly"):
            from_tf(function)(x)
    inside = tf.function(lambda x: tf.cast(tf.cast(x, "int4"), tf.int8), jit_compile=True)
    assert_same(from_tf(inside)(jnp.arange(3, dtype=jnp.int8)), np.arange(3, dtype=np.int8))
    assert_same(from_tf(tf.function(lambda x: tf.identity(x)))(x), x)
    hostcall.configure(functions="all")
    try:
        assert_same(from_tf(same)(x), x)
    finally:
        hostcall.configure(functions="taken")


@each_mode
@each_compilation
def test_values_and_gradients_in_loops_and_branches(mode: Any, jit_compile: bool) -> None:
    def function(x: Any, n: Any) -> Any:
        return sin(x) * tf.cast(n, tf.float32), n

    called = from_tf(tf.function(function, jit_compile=jit_compile))

    def in_a_loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda _, x: called(x, 2)[0], x)

    def loss(x: Any) -> Any:
        return jax.lax.cond(x[1] > 0, in_a_loop, lambda x: x, x).sum()

    value, slope = mode(jax.value_and_grad(loss))(X)
    np.testing.assert_allclose(value, (2 * np.sin(2 * np.sin(X))).sum(), rtol=1e-6)
    expected = 2 * np.cos(X) * 2 * np.cos(2 * np.sin(X))
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@each_mode
def test_second_derivatives(mode: Any) -> None:
    called = from_tf(lambda x: tf.sin(x) * x)
    twice = mode(jax.grad(lambda x: jax.grad(lambda x: called(x).sum())(x).sum()))(X)
    np.testing.assert_allclose(twice, 2 * np.cos(X) - X * np.sin(X), rtol=1e-5, atol=1e-6)


def test_complex_gradients_are_jaxs() -> None:
    z = jnp.array([1 + 2j, 3 - 1j])
    ours = jax.grad(lambda z: jnp.abs(from_tf(lambda z: z * z * 1j)(z)).sum())(z)
    np.testing.assert_allclose(ours, jax.grad(lambda z: jnp.abs(z * z * 1j).sum())(z), rtol=1e-5)


@pytest.mark.parametrize("method", ["sequential", "broadcast_all", "expand_dims"])
def test_vmap(method: str) -> None:
    called = from_tf(lambda x: numpy_op(np.cos, x), vmap_method=method)
    rows = jnp.stack([X, 2 * X])
    np.testing.assert_array_equal(jax.jit(jax.vmap(called))(rows), np.cos(rows))
    np.testing.assert_array_equal(jax.vmap(from_tf(tf.abs))(rows), np.abs(rows))
    with pytest.raises(NotImplementedError, match='vmap_method="sequential"'):
        jax.vmap(from_tf(tf.sin, pure=True))(rows)


def test_the_order_of_side_effects() -> None:
    log: list[int] = []

    def note(n: int) -> Any:
        return lambda x: (log.append(n), x)[1]

    @tf.function(jit_compile=True)
    def function(x: Any) -> Any:
        for n in range(5):
            numpy_op(note(n), x)
        return x

    called = from_tf(function, ordered=True)
    jax.jit(lambda x: [called(x), called(x)])(X)
    jax.effects_barrier()
    assert log == [0, 1, 2, 3, 4] * 2


@each_mode
def test_variables(mode: Any) -> None:
    total = tf.Variable(tf.zeros(4))

    called = mode(from_tf(lambda x: total.assign_add(numpy_op(np.cos, x)), ordered=True))
    for i in range(1, 4):
        np.testing.assert_allclose(called(X), i * np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(total, 3 * np.cos(X), rtol=1e-6)


@each_mode
def test_shapes_that_only_the_user_knows(mode: Any) -> None:
    def function(x: Any) -> Any:
        return tf.numpy_function(np.cumsum, [x], tf.float32)

    np.testing.assert_allclose(mode(from_tf(function, result=lambda x: x))(X), np.cumsum(X))
    with pytest.raises(ValueError, match="TensorFlow knows no more of a result's shape"):
        mode(from_tf(function))(X)
    with pytest.raises(ValueError, match=r"\['int32'\], and the function returns \['float32'\]"):
        mode(from_tf(function, result=struct([4], np.int32)))(X)
    assert "its declared shape is (3,)" in str(failure(from_tf(function, result=struct([3])), X))


@each_mode
def test_64_bits_are_narrowed_as_in_jax(mode: Any) -> None:
    called = mode(from_tf(lambda x: tf.cast(tf.reduce_sum(x), tf.float64)))
    assert_same(np.asarray(called(X)), np.float32(6))


@each_mode
def test_exceptions(mode: Any) -> None:
    error = DetailedError("the reason")
    program = mode(from_tf(tf.function(lambda x: numpy_op(raising(error), x), jit_compile=True)))
    raised = failure(program, X)
    assert "the reason" in str(raised)
    cause = hostcall.last_error(raised)
    assert isinstance(cause, tf.errors.InvalidArgumentError)
    assert hostcall.last_error(cause) is error


def test_arguments() -> None:
    with pytest.raises(TypeError, match=r"is a function of JAX's\. Call it itself"):
        from_tf(jax.jit(jnp.sin))
    with pytest.raises(TypeError, match="a result is of dtype object, and JAX has arrays of numb"):
        from_tf(tf.strings.as_string)(X)
    with pytest.raises(TypeError, match="wants a function, and not 3"):
        from_tf(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="vmap_method='all' is not one of"):
        from_tf(tf.sin, vmap_method="all")
    with pytest.raises(ValueError, match=r"ordered=True .* pure=True"):
        from_tf(tf.sin, ordered=True, pure=True)


@reads_programs_of_jax
def test_there_and_back() -> None:
    called = from_tf(hostcall.jax.to_tf(lambda x: hostcall.jax.call(np.cos, x, x)))
    np.testing.assert_array_equal(jax.jit(called)(X), np.cos(X))
    back = tf.function(hostcall.jax.to_tf(from_tf(sin)), jit_compile=True)
    np.testing.assert_allclose(back(np.asarray(X)), np.sin(X), rtol=1e-6)


def in_a_branch(x: Any) -> Any:
    return tf.cond(x[0] > 9, lambda: x, lambda: sin(sin(x)))


def in_a_loop(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, sin(x)), [0, x])[1]


@each_mode
@pytest.mark.parametrize("function", [in_a_branch, in_a_loop])
def test_calls_after_a_gradient(mode: Any, function: Any) -> None:
    # TensorFlow adds to what the function returns what its gradient needs.
    called = from_tf(tf.function(function))
    slope = mode(jax.grad(lambda x: called(x).sum()))(X)
    np.testing.assert_allclose(slope, np.cos(np.sin(X)) * np.cos(X), rtol=1e-6)
    for like in (X, X[:2]):
        np.testing.assert_allclose(mode(lambda x: called(x))(like), np.sin(np.sin(like)), rtol=1e-6)
        mode(jax.grad(lambda x: called(x).sum()))(like)
    np.testing.assert_allclose(mode(lambda x: called(x))(like), np.sin(np.sin(like)), rtol=1e-6)


@each_mode
def test_values_and_errors_are_those_of_graph_mode(mode: Any) -> None:
    @tf.function(jit_compile=True)
    def function(x: Any, i: Any) -> Any:
        return numpy_op(np.cos, x), tf.gather(x, i), tf.cast(x * 1e30, tf.int32)

    called = mode(from_tf(function))
    for _ in range(2):
        values = called(X, jnp.int32(1))
        assert_same([*values][1:], [X[1], np.asarray(tf.cast(np.asarray(X) * 1e30, tf.int32))])
        text = str(failure(called, X, jnp.int32(len(X))))
        assert "InvalidArgumentError" in text
        assert f"GatherV2 at {__file__}:" in text


def test_converted_functions_leave_nothing_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered for forks stays for ever."""
    left: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **handlers: left.append(handlers))
    np.testing.assert_array_equal(hostcall.jax.from_tf(tf.square)(2.0), 4.0)
    np.testing.assert_array_equal(hostcall.jax.to_tf(jnp.square)(tf.constant(2.0)), 4.0)
    assert not left
