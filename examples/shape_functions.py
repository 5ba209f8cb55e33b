"""Four ways to tell XLA the shape of a result.

hostcall checks the shape whenever the function runs.
"""

import numpy as np
import scipy.ndimage
import tensorflow as tf

import hostcall


@tf.function(jit_compile=True)
def eigenvalues(matrices: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(np.linalg.eigvalsh, [matrices], tf.float32)


# 1. A shape function for a function that is passed to a stock op. It computes the shape of the
# result from those of the arguments when XLA compiles, so it knows sizes that tracing does not.
hostcall.declare(np.linalg.eigvalsh, result=lambda m: tf.TensorSpec(m.shape[:-1], m.dtype))


# 2. In Tout, for a constant shape.
@tf.function(jit_compile=True)
def histogram(x: tf.Tensor) -> tf.Tensor:
    def count(values: np.ndarray) -> np.ndarray:
        return np.histogram(values, bins=8, range=(0, 1))[0]

    return tf.numpy_function(count, [x], tf.TensorSpec([8], tf.int64))


# 3. With hostcall.callback, for a function that is called on tensors directly.
@hostcall.callback(result=lambda image, _: tf.TensorSpec(image.shape, image.dtype))
def blur(image: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return scipy.ndimage.gaussian_filter(image, factor)


# 4. By set_shape, from the static shape of the argument, or for a constant shape.
@tf.function(jit_compile=True)
def ranks(x: tf.Tensor) -> tf.Tensor:
    result = tf.numpy_function(lambda v: np.argsort(np.argsort(v)), [x], tf.int64)
    result.set_shape(x.shape)
    return result


def main() -> None:
    rng = np.random.default_rng(0)
    for batch in (2, 5):
        m = rng.random([batch, 3, 3], dtype=np.float32)
        values = eigenvalues(m)
        np.testing.assert_array_equal(values, np.linalg.eigvalsh(m))
        print(f"eigenvalues of {m.shape}: {values.shape}")

    x = rng.random([100], dtype=np.float32)
    np.testing.assert_array_equal(histogram(x), np.histogram(x, bins=8, range=(0, 1))[0])
    print(f"histogram: {histogram(x).numpy()}")
    np.testing.assert_array_equal(ranks(x), np.argsort(np.argsort(x)))
    print(f"ranks: {ranks(x)[:8].numpy()} ...")

    image = rng.random([32, 32], dtype=np.float32)
    blurred = tf.function(blur, jit_compile=True)(image, 2.0)
    np.testing.assert_array_equal(blurred, scipy.ndimage.gaussian_filter(image, 2.0))
    print(f"standard deviation before and after blur: {image.std():.3f}, {np.std(blurred):.3f}")

    wrong = tf.function(
        lambda x: tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32)), jit_compile=True
    )
    try:
        wrong(x)
    except tf.errors.InvalidArgumentError as error:
        print(f"a wrong shape is an error: {error.message.splitlines()[0]}")
    else:
        raise AssertionError("the wrong shape went unnoticed")


if __name__ == "__main__":
    main()
