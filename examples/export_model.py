"""A model that calls SciPy is trained in TensorFlow, and runs where there is no TensorFlow.

The height of a round wave is `a * J0(b * r)`, with SciPy's Bessel function. The example needs JAX,
whose MLIR writes the program.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import scipy.special
import tensorflow as tf

import hostcall


def same_as_input(x: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape, x.dtype)


def gradient_of_j0(inputs: tuple, _: object, upstream: tf.Tensor) -> tf.Tensor:
    return -upstream * j1(inputs[0])


# Any process finds SciPy's functions by name. It finds your own, too, if they are at the top level
# of a module that both processes can import.
j0 = hostcall.callback(scipy.special.j0, result=same_as_input, stateful=False, grad=gradient_of_j0)
j1 = hostcall.callback(scipy.special.j1, result=same_as_input, stateful=False)


class Wave(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.amplitude = tf.Variable(1.0, name="amplitude")
        self.number = tf.Variable(1.0, name="number")

    @tf.function(jit_compile=True)
    def height(self, distance: tf.Tensor) -> tf.Tensor:
        return self.amplitude * j0(self.number * distance)

    @tf.function(jit_compile=True)
    def step(self, distance: tf.Tensor, measured: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.height(distance) - measured) ** 2)
        slopes = tape.gradient(loss, [self.amplitude, self.number])
        for variable, slope in zip([self.amplitude, self.number], slopes, strict=True):
            variable.assign_sub(0.2 * slope)
        return loss


def main() -> None:
    distance = np.linspace(0, 8, 64, dtype=np.float32)
    measured = np.float32(1.5) * scipy.special.j0(np.float32(1.2) * distance)
    wave = Wave()
    losses = [float(wave.step(distance, measured)) for _ in range(200)]
    assert losses[-1] < 1e-3 * losses[0], losses[-1]

    served = np.linspace(0, 8, 5, dtype=np.float32)
    expected = wave.height(served).numpy()
    with tempfile.TemporaryDirectory() as directory:
        program = hostcall.export(wave.height, tf.TensorSpec([5], tf.float32))
        program.save(directory)
        print("The program calls", ", ".join(entry.name for entry in program.manifest.callbacks))

        # In TensorFlow again, without the class. Whoever loads a program says what it may import.
        hostcall.allow("scipy.special:j0")
        np.testing.assert_array_equal(hostcall.load(directory)(served), expected)

        # In a process of its own, which never imports TensorFlow.
        script = pathlib.Path(__file__).with_name("serve_model.py")
        command = [sys.executable, str(script), directory]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = np.array(printed.split(), np.float32)
    np.testing.assert_allclose(numbers, expected, atol=1e-6)
    print("Without TensorFlow:", printed.strip())


if __name__ == "__main__":
    main()
