"""One Python function called from JAX and from TensorFlow; programs of each within the other.

JAX is optional: this example needs it, `import hostcall` does not.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import tensorflow as tf

import hostcall.jax


def same_as_input(x: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape, x.dtype)


def gradient_of_bessel(inputs: tuple, _: object, upstream: object) -> object:
    return -upstream * bessel_of_order_1(inputs[0])  # JAX's arrays in JAX, tensors in TensorFlow


@hostcall.callback(result=same_as_input, stateful=False, grad=gradient_of_bessel)
def bessel(x: np.ndarray) -> np.ndarray:
    return scipy.special.j0(x)


@hostcall.callback(result=same_as_input, stateful=False)
def bessel_of_order_1(x: np.ndarray) -> np.ndarray:
    return scipy.special.j1(x)


def scaled(x: jax.Array) -> jax.Array:
    jax.debug.print("JAX sees {n} rows", n=x.shape[0])
    y = hostcall.jax.call(scipy.special.j0, x, x, pure=True)
    return y / jnp.abs(y).max()


total = tf.Variable(tf.zeros(6))


@tf.function
def add_up(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(scipy.special.j0, [x], tf.float32)
    return total.assign_add(tf.ensure_shape(y, x.shape))


def main() -> None:
    x = np.linspace(0, 5, 6, dtype=np.float32)
    expected = scipy.special.j0(x)

    # One callback object, in both frameworks.
    np.testing.assert_allclose(jax.jit(bessel)(x), expected, rtol=1e-6)
    np.testing.assert_allclose(tf.function(bessel, jit_compile=True)(x), expected, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda x: bessel(x).sum()))(x)
    np.testing.assert_allclose(slope, -scipy.special.j1(x), rtol=1e-6)

    # A JAX function with callbacks in a compiled TensorFlow function, for batches of any size.
    program = tf.function(
        hostcall.jax.to_tf(scaled, polymorphic_shapes="batch, ..."),
        input_signature=[tf.TensorSpec([None, 6], tf.float32)],
        jit_compile=True,
    )
    rows = np.stack([x, x + 1])
    np.testing.assert_allclose(program(rows), scipy.special.j0(rows), rtol=1e-5)

    # A TensorFlow function with a variable and a script op in a loop of JAX's.
    in_jax = hostcall.jax.from_tf(add_up)
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y + in_jax(x), 0 * x))
    np.testing.assert_allclose(loop(x), 6 * expected, rtol=1e-5)
    print(f"TensorFlow's variable has added up {round(float(total[0]))} calls")


if __name__ == "__main__":
    main()
