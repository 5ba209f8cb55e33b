"""Runs the model that export_model.py has saved: without TensorFlow, and without the model's code.

It needs JAX, and SciPy, whose function the program calls.
"""

import sys

import numpy as np

import hostcall_mlir


def main(directory: str) -> None:
    # A program imports nothing that is not allowed. This one may call a single function.
    hostcall_mlir.allow("scipy.special:j0")
    program = hostcall_mlir.load(directory)
    distance = np.linspace(0, 8, 5, dtype=np.float32)
    whole = program(distance)
    partitioned = hostcall_mlir.load(directory, partitioned=True)(distance)
    assert np.array_equal(whole, partitioned), "a program in parts computes what the whole one does"
    assert "tensorflow" not in sys.modules
    print(" ".join(f"{value:.6f}" for value in np.asarray(whole).tolist()))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        print(f"usage: {sys.argv[0]} DIRECTORY, which export_model.py has written")
