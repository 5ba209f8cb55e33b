"""The device that tests run on which say nothing of one.

`HOSTCALL_TEST_DEVICE=XLA_CPU:0` takes one that every machine has and that TensorFlow takes for an
accelerator: XLA compiles all that runs on it, and its memory is its own as far as TensorFlow knows.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

# "" for the CPU.
DEVICE = os.environ.get("HOSTCALL_TEST_DEVICE", "")

_FLAG = "--tf_xla_enable_xla_devices"

if DEVICE.startswith("XLA_"):
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {_FLAG}"


def on_device() -> contextlib.AbstractContextManager[Any]:
    """Has what is made and run in a `with` statement be on the device."""
    import tensorflow as tf  # reads the flag

    return tf.device(f"/device:{DEVICE}") if DEVICE else contextlib.nullcontext()


# What becomes of a function with ops that XLA has no kernels for.
MODE_OF_REGIONS = "partitioned" if DEVICE else "compiled"
