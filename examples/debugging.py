"""Looking into a compiled model: print, record or stop at intermediate values while it runs."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import hostcall

seen: dict[str, np.ndarray] = {}


def inspect(name: str, tensor: tf.Tensor) -> tf.Tensor:
    """Put `inspect("x", x)` in the place of `x`: the value does not change."""

    def look(array: np.ndarray) -> None:
        seen[name] = array
        print(f"{name:8} shape {array.shape}, from {array.min():.4f} to {array.max():.4f}")
        # breakpoint()  # works here, with `array` at hand

    tf.numpy_function(look, [tensor], [])
    return tensor


def check_finite(name: str, tensor: tf.Tensor) -> tf.Tensor:
    """Stop the program where a value first becomes infinite or not a number."""

    def check(array: np.ndarray) -> None:
        if not np.isfinite(array).all():
            raise FloatingPointError(f"{name} is not finite")

    tf.numpy_function(check, [tensor], [])
    return tensor


def network(x: tf.Tensor, weights: tf.Tensor, look: Callable[..., tf.Tensor]) -> tf.Tensor:
    hidden = look("hidden", tf.math.log(look("product", x @ weights)))
    return look("output", tf.reduce_sum(hidden, axis=1))


def main() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    weights = tf.constant([[1.0, 0.5], [0.25, 2.0]])
    output = tf.function(network, jit_compile=True)(x, weights, inspect)
    np.testing.assert_array_equal(list(seen), ["product", "hidden", "output"])
    np.testing.assert_allclose(seen["product"], x.numpy() @ weights.numpy(), rtol=1e-6)
    np.testing.assert_array_equal(seen["output"], output)

    try:
        tf.function(network, jit_compile=True)(x, 0.0 * weights, check_finite)
    except tf.errors.UnknownError as error:
        cause = hostcall.last_error(error)
    else:
        raise AssertionError("log(0) went unnoticed")
    print(f"stopped: {cause!r}")
    assert str(cause) == "hidden is not finite"


if __name__ == "__main__":
    main()
