"""Keras: a loss written as a py_function and a metric of NumPy, in a compiled `fit`.

The last batch is smaller than the others, so tracing does not know the batch size. The shape
function of the loss computes the shape of the result from it.
"""

import keras
import numpy as np
import tensorflow as tf

import hostcall


def trimmed(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Return the squared error of each sample, at most five times their median."""
    errors = (y_true - y_pred)[:, 0] ** 2
    limit = 5 * tf.sort(errors)[len(errors) // 2]
    return tf.minimum(errors, limit) if limit > 0 else errors


def median_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return np.median(np.abs(y_true - y_pred))


hostcall.declare(trimmed, result=lambda _, y_pred: tf.TensorSpec(y_pred.shape[:1], y_pred.dtype))
hostcall.declare(median_error, result=tf.TensorSpec([], tf.float32))


def loss(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.py_function(trimmed, [y_true, y_pred], tf.float32)


def metric(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(median_error, [y_true, y_pred], tf.float32)


def train(jit_compile: bool) -> dict[str, list[float]]:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=[100, 4]).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    y[::25] += 100  # outliers
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    model.compile("adam", loss, metrics=[metric], jit_compile=jit_compile)
    return model.fit(x, y, batch_size=32, epochs=3, verbose=0).history


def main() -> None:
    compiled, plain = train(jit_compile=True), train(jit_compile=False)
    for name in plain:
        print(f"{name:7} jit_compile=True: {np.round(compiled[name], 4)}")
        print(f"{name:7} plain:            {np.round(plain[name], 4)}")
        np.testing.assert_allclose(compiled[name], plain[name], rtol=1e-5)


if __name__ == "__main__":
    main()
