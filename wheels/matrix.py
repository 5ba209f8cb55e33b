"""The wheels by their Python, and the versions of TensorFlow that each of them serves."""

from __future__ import annotations

import platform

# The package of TensorFlow for CPUs, which has its own name only on x86-64.
TENSORFLOW = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"

# The minor versions of TensorFlow by the Python of the wheel, oldest first: those that hostcall
# works with, and that have wheels for this Python themselves. With no version, the wheel holds only
# the runtime, which is all that JAX needs.
SERVED = {
    "3.11": ["2.19", "2.20", "2.21"],
    "3.12": ["2.19", "2.20", "2.21"],
    "3.13": ["2.20", "2.21"],
    "3.14": [],
}
