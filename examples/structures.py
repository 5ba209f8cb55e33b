"""Dicts, tuples and nested structures as arguments and results of a callback."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import hostcall


class Moments(NamedTuple):
    mean: Any
    std: Any


def scalar_moments(x: tf.TensorSpec) -> Moments:
    return Moments(tf.TensorSpec(x.shape[1:], x.dtype), tf.TensorSpec(x.shape[1:], x.dtype))


@hostcall.callback(
    result=lambda batch: {name: scalar_moments(column) for name, column in batch.items()}
)
def summarize(batch: dict[str, np.ndarray]) -> dict[str, Moments]:
    return {name: Moments(x.mean(axis=0), x.std(axis=0)) for name, x in batch.items()}


@tf.function(jit_compile=True)
def normalize(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    moments = summarize(batch)
    return {name: (x - moments[name].mean) / moments[name].std for name, x in batch.items()}


@tf.function(jit_compile=True)
def scale(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    # The stock op takes a dict as its only input, too, and has specs in Tout.
    specs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in batch.items()}
    return tf.numpy_function(
        lambda arrays: {name: x / np.abs(x).max() for name, x in arrays.items()}, batch, specs
    )


def main() -> None:
    rng = np.random.default_rng(0)
    batch = {
        "height": rng.normal(170, 10, [50]).astype("float32"),
        "position": rng.normal(0, 3, [50, 2]).astype("float32"),
    }
    for name, x in normalize(batch).items():
        expected = (batch[name] - batch[name].mean(axis=0)) / batch[name].std(axis=0)
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
        print(f"{name}: shape {x.shape}, normalized to a standard deviation of {np.std(x):.3f}")
    for name, x in scale(batch).items():
        np.testing.assert_array_equal(x, batch[name] / np.abs(batch[name]).max())
        print(f"{name}: scaled to a maximum of {np.abs(x).max():.3f}")


if __name__ == "__main__":
    main()
