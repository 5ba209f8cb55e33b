"""Results of unknown size: np.unique and np.nonzero inside a compiled function.

XLA must know every size when it compiles. A BoundedSpec declares an upper bound instead, and the
program computes with the true size.
"""

import numpy as np
import tensorflow as tf

import hostcall


@hostcall.callback(result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype), stateful=False)
def unique(x: np.ndarray) -> np.ndarray:
    return np.unique(x)


def one_row_for_each_pixel(mask: tf.TensorSpec) -> hostcall.BoundedSpec:
    return hostcall.BoundedSpec([mask.shape.num_elements(), mask.shape.rank], tf.int64)


@hostcall.callback(result=one_row_for_each_pixel, stateful=False)
def nonzero(mask: np.ndarray) -> np.ndarray:
    return np.argwhere(mask)


@tf.function(jit_compile=True)
def describe(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    values = unique(x)
    return values, tf.size(values), tf.reduce_mean(values)


@tf.function(jit_compile=True)
def positions_above(image: tf.Tensor, threshold: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    found = nonzero(image > threshold)
    return found, tf.reduce_max(found, axis=0)


def main() -> None:
    for numbers in ([3.0, 1.0, 3.0, 1.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0]):
        values, count, mean = describe(tf.constant(numbers))
        np.testing.assert_array_equal(values, np.unique(numbers))
        assert count == len(np.unique(numbers))
        assert mean == np.mean(np.unique(numbers))
        print(f"unique of {numbers}: {values.numpy()}, {count} of them, mean {mean:g}")

    image = np.random.default_rng(0).random([6, 7], dtype=np.float32)
    for threshold in (0.5, 0.9):
        found, last = positions_above(image, threshold)
        np.testing.assert_array_equal(found, np.argwhere(image > threshold))
        np.testing.assert_array_equal(last, np.argwhere(image > threshold).max(axis=0))
        print(f"{len(found)} pixels above {threshold}, in rows and columns up to {last.numpy()}")


if __name__ == "__main__":
    main()
