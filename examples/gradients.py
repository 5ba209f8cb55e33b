"""Gradients: a py_function has them by itself, a numpy_function gets one from you."""

from collections.abc import Callable

import numpy as np
import scipy.special
import tensorflow as tf

import hostcall


def same_as_input(x: tf.TensorSpec, *_: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape, x.dtype)


# TensorFlow runs the function eagerly and records it. Python decides what is computed.
@hostcall.callback(result=same_as_input, kind="eager")
def iterated_sine(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_max(tf.abs(x)) > 0.7:
        x = tf.sin(x)
    return x


# NumPy records nothing: the gradient is a callback of its own.
j0 = hostcall.callback(scipy.special.j0, result=same_as_input, stateful=False)
j1 = hostcall.callback(scipy.special.j1, result=same_as_input, stateful=False)


@tf.custom_gradient
def bessel(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    return j0(x), lambda upstream: -upstream * j1(x)


def value_and_slope(function: Callable[[tf.Tensor], tf.Tensor], x: np.ndarray) -> list[tf.Tensor]:
    @tf.function(jit_compile=True)
    def compiled(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return [y, tape.gradient(y, x)]

    return compiled(tf.constant(x))


def main() -> None:
    x = np.float32([0.5, 1.0, 2.0])
    y, slope = value_and_slope(iterated_sine, x)
    expected, expected_slope = x, np.ones_like(x)
    while np.abs(expected).max() > 0.7:
        expected_slope = expected_slope * np.cos(expected)
        expected = np.sin(expected)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-5)
    print(f"iterated sine: {y.numpy().round(4)}, slope {slope.numpy().round(4)}")

    y, slope = value_and_slope(bessel, x)
    np.testing.assert_allclose(y, scipy.special.j0(x), rtol=1e-6)
    np.testing.assert_allclose(slope, -scipy.special.j1(x), rtol=1e-6)
    print(f"Bessel J0: {y.numpy().round(4)}, slope {slope.numpy().round(4)}")


if __name__ == "__main__":
    main()
