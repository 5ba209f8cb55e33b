"""Stateless callbacks: XLA drops a call with an unused result; a stateful one runs anyway.

Declare stateful=False for a function that returns the same for the same arguments and does nothing
else.
"""

import numpy as np
import scipy.special
import tensorflow as tf

import hostcall

calls = {"stateful": 0, "stateless": 0}


def same_as_input(x: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape, x.dtype)


@hostcall.callback(result=same_as_input)
def stateful_zeta(x: np.ndarray) -> np.ndarray:
    calls["stateful"] += 1
    return scipy.special.zetac(x)


@hostcall.callback(result=same_as_input, stateful=False)
def stateless_zeta(x: np.ndarray) -> np.ndarray:
    calls["stateless"] += 1
    return scipy.special.zetac(x)


@tf.function(jit_compile=True)
def program(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    stateful_zeta(x + 1.0)  # the results of these two are unused
    stateless_zeta(x + 1.0)
    return stateful_zeta(x), stateless_zeta(x)


def main() -> None:
    x = tf.constant([2.0, 3.0, 4.0])
    for result in program(x):
        np.testing.assert_array_equal(result, scipy.special.zetac(x.numpy()))
    print(f"of two calls each there ran: {calls}")
    assert calls == {"stateful": 2, "stateless": 1}


if __name__ == "__main__":
    main()
