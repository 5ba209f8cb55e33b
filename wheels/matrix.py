"""Which wheels there are, and what each of them serves."""

from __future__ import annotations

import platform

# The package of TensorFlow for CPUs, which has a name of its own on x86-64 alone.
TENSORFLOW = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"

# The minor versions of TensorFlow by the Python of the wheel, oldest first: those that hostcall
# works with, and that have wheels for this Python themselves. Where there are none, the wheel holds
# the runtime alone, which is all that JAX needs.
SERVED = {
    "3.11": ["2.19", "2.20", "2.21"],
    "3.12": ["2.19", "2.20", "2.21"],
    "3.13": ["2.20", "2.21"],
    "3.14": [],
}
