"""A GPU of TensorFlow's that is none: `tests/cpp/gpu`.

TensorFlow takes it for a GPU, and XLA compiles for its kind. What comes out is code for the CPU,
and its memory is the host's. It ends the process where a copy between it and the host is given
memory of the wrong side.

Imports no hostcall, which has to find what TensorFlow has before it.
"""

import os
from types import ModuleType

from tests.support.native.modules import BUILD, load_file, module_file


def compile_for_gpus() -> ModuleType:
    """Has a TensorFlow without GPUs compile for them; before it compiles anything."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf  # its libraries come before the module

    native = load_file("_fake_gpu", module_file(BUILD, "tests/cpp/gpu/_fake_gpu"))
    if not tf.test.is_built_with_gpu_support():
        native.compile_for_gpus()
    return native


def install() -> None:
    """Gives TensorFlow the device GPU:0; before it looks for devices."""
    compile_for_gpus().add_gpu()
