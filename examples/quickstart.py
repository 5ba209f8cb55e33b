"""Three programs that stock TensorFlow cannot compile, compiled, beside what stock TensorFlow does.

Shows a py_function with its gradient, a function of SciPy, and a Keras layer in `fit`. What stock
TensorFlow does is run before hostcall is imported. Exits with 1 if numbers differ.
"""

import re
import sys
from collections.abc import Callable

import keras
import numpy as np
import scipy.optimize
import tensorflow as tf

Numbers = dict[str, float]


def log_huber(x: tf.Tensor, m: tf.Tensor) -> tf.Tensor:
    """Compute the example of TensorFlow's documentation of tf.py_function."""
    if tf.abs(x) <= m:
        return x**2
    return m**2 * (1 - 2 * tf.math.log(m) + tf.math.log(x**2))


def gradient_of_log_huber(jit: bool) -> Numbers:
    @tf.function(jit_compile=jit)
    def value_and_gradient(x: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(log_huber, [x, m], tf.float32)
            y.set_shape([])  # XLA wants to know the shape
        return y, tape.gradient(y, x)

    numbers = {}
    for point in (1.0, 3.0):
        y, slope = value_and_gradient(tf.constant(point), tf.constant(2.0))
        numbers |= {f"log_huber({point:g}, 2)": float(y), f"its slope at {point:g}": float(slope)}
    return numbers


def cheapest_matching(jit: bool) -> Numbers:
    def match(costs: np.ndarray) -> np.ndarray:
        return scipy.optimize.linear_sum_assignment(costs)[1]

    @tf.function(jit_compile=jit)
    def mean_distance(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        distances = tf.norm(a[:, None] - b[None], axis=-1)
        partners = tf.numpy_function(match, [distances], tf.int64)
        partners.set_shape(a.shape[:1])
        return tf.reduce_mean(tf.gather(distances, partners, batch_dims=1))

    points = np.random.default_rng(0).random([2, 200, 3], dtype=np.float32)
    return {"mean distance of 200 pairs": float(mean_distance(*points))}


class Winsorize(keras.layers.Layer):
    """Pulls outliers of a batch in, with plain Python control flow; differentiable."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        def pull_in(x: tf.Tensor) -> tf.Tensor:
            limit = 2 * tf.math.reduce_std(x)
            return tf.clip_by_value(x, -limit, limit) if tf.reduce_max(tf.abs(x)) > limit else x

        outputs = tf.py_function(pull_in, [inputs], inputs.dtype)
        outputs.set_shape(inputs.shape)
        return outputs


def training(jit: bool) -> Numbers:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=[256, 8]).astype("float32")
    y = np.sin(x).sum(axis=1, keepdims=True)
    layers = [keras.Input([8], batch_size=32), keras.layers.Dense(16), Winsorize()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=jit)
    losses = model.fit(x, y, batch_size=32, epochs=3, verbose=0).history["loss"]
    return {f"loss of epoch {epoch}": loss for epoch, loss in enumerate(losses, 1)}


PROGRAMS: dict[str, Callable[[bool], Numbers]] = {
    "tf.py_function and its gradient": gradient_of_log_huber,
    "tf.numpy_function of SciPy's linear_sum_assignment": cheapest_matching,
    "keras fit with a tf.py_function layer": training,
}


def compiled_by_stock(program: Callable[[bool], Numbers]) -> str:
    try:
        program(True)
    except tf.errors.OpError as error:
        found = re.search(r"No registered '\w+' OpKernel for \w+ devices", error.message)
        return f"error, {found[0]}" if found else error.message
    return "works"


def main() -> int:
    plain = {title: program(False) for title, program in PROGRAMS.items()}
    stock = {title: compiled_by_stock(program) for title, program in PROGRAMS.items()}

    import hostcall  # noqa: F401 - from here on the same programs compile

    wrong = 0
    for title, program in PROGRAMS.items():
        print(f"\n{title}")
        print(f"  {'':28}{'stock, no jit':>16}{'hostcall, jit':>16}")
        for name, number in program(True).items():
            agrees = np.isclose(number, plain[title][name], rtol=1e-5)
            wrong += not agrees
            print(f"  {name:28}{plain[title][name]:16.6f}{number:16.6f}{'' if agrees else '  !'}")
        print(f"  {'stock, jit':28}{stock[title]}")
    print(f"\n{'All numbers agree.' if not wrong else f'{wrong} numbers disagree.'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
