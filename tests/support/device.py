"""The device that tests run on which say nothing of one.

`HOSTCALL_TEST_DEVICE=XLA_CPU:0` takes one that every machine has and that TensorFlow takes for an
accelerator: XLA compiles all that runs on it, and its memory is its own as far as TensorFlow knows.
"""

from __future__ import annotations

import os

# "" for the CPU.
DEVICE = os.environ.get("HOSTCALL_TEST_DEVICE", "")

_FLAG = "--tf_xla_enable_xla_devices"

if DEVICE.startswith("XLA_"):
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {_FLAG}"
