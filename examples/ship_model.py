"""Trains a model with a loss of SciPy's, saves it, and serves it with Python and without.

The SavedModel names the functions that it calls, `scipy.special:erf` here. Whoever runs it allows
the module: `saved_model_cli` in its own process, and the C program of serve_saved_model.c in the
worker that it starts.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import scipy.special
import tensorflow as tf

import hostcall

huber = hostcall.callback(
    lambda error: scipy.special.huber(np.float32(1), error),
    result=lambda error: error,
    grad=lambda inputs, _, upstream: upstream * tf.clip_by_value(inputs[0], -1, 1),
)
erf = hostcall.callback(
    scipy.special.erf,
    result=lambda x: x,
    grad=lambda inputs, _, upstream: upstream * 2 / np.pi**0.5 * tf.exp(-(inputs[0] ** 2)),
)

ALLOWED = {"HOSTCALL_ALLOW": "scipy"}
CLI = "import hostcall; from tensorflow.python.tools.saved_model_cli import main; main()"


class Erf(keras.layers.Layer):
    """The error function as an activation."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return erf(x)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return shape


def trained() -> keras.Model:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=[256, 4]).astype("float32")
    y = np.tanh(x.sum(axis=1, keepdims=True))
    layers = [keras.Input([4], name="x"), keras.layers.Dense(8), Erf(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.02)
    model.compile(optimizer, lambda true, found: huber(true - found), jit_compile=True)
    losses = model.fit(x, y, epochs=10, verbose=0).history["loss"]
    print(f"trained: the loss falls from {losses[0]:.3f} to {losses[-1]:.3f}")
    assert losses[-1] < losses[0]
    return model


def run_by_cli(directory: str, x: np.ndarray) -> np.ndarray:
    """Return what TensorFlow's own command computes, in another process."""
    with tempfile.TemporaryDirectory() as out:
        given = Path(out, "x.npy")
        np.save(given, x)
        arguments = ["run", "--dir", directory, "--tag_set", "serve", "--signature_def", "serve"]
        arguments += ["--inputs", f"x={given}", "--outdir", out]
        command = [sys.executable, "-c", CLI, *arguments]
        subprocess.run(command, env=os.environ | ALLOWED, check=True, stdout=subprocess.DEVNULL)
        return np.load(Path(out, "output_0.npy"))


def run_by_c(directory: str, x: np.ndarray) -> np.ndarray:
    """Return what a C program computes, which has no Python and starts a worker."""
    libraries = tf.sysconfig.get_lib()
    with tempfile.TemporaryDirectory() as out:
        program = str(Path(out, "serve_saved_model"))
        source = str(Path(__file__).with_name("serve_saved_model.c"))
        found = [f"-I{tf.sysconfig.get_include()}", f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
        linked = ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
        subprocess.run(["cc", source, "-o", program, *found, *linked], check=True)
        names = ["serve_x:0", "StatefulPartitionedCall:0"]
        values = [str(len(x)), *map(str, x.ravel())]
        printed = subprocess.run(
            [program, hostcall.serving_library(), directory, *names, *values],
            env=os.environ | ALLOWED | {"HOSTCALL_WORKER_PYTHON": sys.executable},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        return np.array(printed.split(), np.float32)[:, None]


def main() -> None:
    model = trained()
    x = np.random.default_rng(1).normal(size=[3, 4]).astype("float32")
    expected = np.asarray(model(x))
    with tempfile.TemporaryDirectory() as directory:
        model.export(directory, verbose=False)
        for name, run in {"saved_model_cli": run_by_cli, "a C program": run_by_c}.items():
            computed = run(directory, x)
            np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)
            print(f"{name} computes what the model does: {np.round(computed.ravel(), 3)}")


if __name__ == "__main__":
    main()
