"""Keras: `fit(jit_compile=True)` with what XLA cannot compile.

The model looks up texts and numbers in vocabularies and augments its images; each step of the
training prints a line and writes a summary. TensorFlow alone refuses to compile it, and Keras does
not even try where a layer says that it does not support compilation: it warns and goes on without.
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import hostcall

WORDS = ["rain", "sun", "snow"]
CITIES = [101, 205, 309]


class Watched(keras.Model):
    """A model whose training says what it does."""

    writer: tf.summary.SummaryWriter

    def train_step(self, data):
        logs = super().train_step(data)
        step = tf.cast(self.optimizer.iterations, tf.int64)
        tf.print("step", step, "loss", logs["loss"])
        with self.writer.as_default():
            tf.summary.write("loss", logs["loss"], step=step)
        return logs


def build() -> keras.Model:
    word = keras.Input([], dtype="string", name="word")
    city = keras.Input([], dtype="int64", name="city")
    image = keras.Input([8, 8, 1], name="image")
    augmented = keras.layers.RandomFlip("horizontal", seed=1)(image)
    augmented = keras.layers.RandomTranslation(0.2, 0.2, seed=2)(augmented)
    features = [
        keras.layers.StringLookup(vocabulary=WORDS, output_mode="one_hot")(word),
        keras.layers.IntegerLookup(vocabulary=CITIES, output_mode="one_hot")(city),
        keras.layers.Flatten()(keras.layers.Conv2D(4, 3, activation="relu")(augmented)),
    ]
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(features))
    model = Watched([word, city, image], keras.layers.Dense(1)(hidden))
    for layer in model.layers:
        layer.supports_jit = True  # those that look something up or move images say no
    return model


def data() -> tuple[dict[str, tf.Tensor], np.ndarray]:
    random = np.random.default_rng(0)
    word, city = random.integers(4, size=[2, 64])
    inputs = {
        "word": tf.gather([*WORDS, "hail"], word),
        "city": tf.gather(tf.constant([*CITIES, 999], tf.int64), city),
        "image": tf.constant(random.normal(size=[64, 8, 8, 1]), tf.float32),
    }
    return inputs, (word + city).astype("float32")


def main() -> None:
    keras.utils.set_random_seed(0)
    inputs, targets = data()
    model = build()
    model.compile("adam", "mse", jit_compile=True)
    with tempfile.TemporaryDirectory() as folder:
        model.writer = tf.summary.create_file_writer(folder)
        print(hostcall.explain(model, inputs, targets).headline)
        history = model.fit(inputs, targets, batch_size=32, epochs=10, verbose=0).history
        model.writer.close()
        [file] = Path(folder).iterdir()
        events = list(tf.compat.v1.train.summary_iterator(str(file)))
    assert model.jit_compile
    written = [float(tf.make_ndarray(v.tensor)) for e in events for v in e.summary.value]
    print(f"losses of the epochs: {np.round(history['loss'], 2)}")
    # Keras tells the mean of the steps so far, and there are two steps in an epoch.
    np.testing.assert_allclose(written[1::2], history["loss"])
    assert history["loss"][-1] < history["loss"][0]


if __name__ == "__main__":
    main()
