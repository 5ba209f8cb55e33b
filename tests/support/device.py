"""The device that tests run on which say nothing of one.

`HOSTCALL_TEST_DEVICE=XLA_CPU:0` takes one that every machine has and that TensorFlow takes for an
accelerator: XLA compiles all that runs on it, and its memory is its own as far as TensorFlow knows.

`HOSTCALL_TEST_DEVICE=GPU:0` takes a GPU. With `HOSTCALL_TEST_GPU=fake` it is none, but TensorFlow
takes it for one (`tests/support/fake_gpu.py`).
"""

import contextlib
import os
from typing import Any

# The device of the tests, "" for the CPU.
DEVICE = os.environ.get("HOSTCALL_TEST_DEVICE", "")

IS_FAKE_GPU = os.environ.get("HOSTCALL_TEST_GPU") == "fake"
JAX_IS_ON_A_GPU = "cuda" in os.environ.get("JAX_PLATFORMS", "")

_FLAG = "--tf_xla_enable_xla_devices"

if DEVICE.startswith("XLA_"):
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {_FLAG}"
elif IS_FAKE_GPU:
    from tests.support import fake_gpu

    fake_gpu.install()


def on_device() -> contextlib.AbstractContextManager[Any]:
    """Has what is made and run in a `with` statement be on the device."""
    if not DEVICE:
        return contextlib.nullcontext()
    import tensorflow as tf  # reads the flag

    return tf.device(f"/device:{DEVICE}")


# The mode of a function with ops that XLA has no kernels for.
MODE_OF_REGIONS = "partitioned" if DEVICE else "compiled"
