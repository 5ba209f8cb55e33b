"""Side effects in program order: a log and a progress report written by a compiled loop.

Each call runs once, in the order of the program, although none of them depends on another.
"""

import numpy as np
import tensorflow as tf

import hostcall  # noqa: F401 - makes numpy_function work in compiled functions

log: list[str] = []


def note(text: str, *values: tf.Tensor) -> None:
    """Call it anywhere in a function that is compiled."""

    def write(*arrays: np.ndarray) -> None:
        log.append(text.format(*arrays))

    tf.numpy_function(write, values, [])


@tf.function(jit_compile=True)
def newton_sqrt(a: tf.Tensor) -> tf.Tensor:
    note("square root of {:g}", a)
    x = a
    for step in tf.range(20):
        better = 0.5 * (x + a / x)
        note("step {}: {:.6f}", step, better)
        if tf.abs(better - x) < 1e-5 * a:
            note("close enough")
            break
        x = better
    note("done")
    return better


def expected_log() -> list[str]:
    lines, x = ["square root of 2"], np.float32(2)
    for step in range(20):
        better = np.float32(0.5) * (x + np.float32(2) / x)
        lines.append(f"step {step}: {better:.6f}")
        if abs(better - x) < 1e-5 * 2:
            break
        x = better
    return [*lines, "close enough", "done"]


def main() -> None:
    root = newton_sqrt(tf.constant(2.0))
    print(*log, sep="\n")
    np.testing.assert_allclose(root, np.sqrt(2), rtol=1e-6)
    assert log == expected_log()


if __name__ == "__main__":
    main()
