"""JAX on CPUs, whatever else the machine has."""

import os

from tests.support.installed import TENSORFLOW

os.environ.setdefault("JAX_PLATFORMS", "cpu")

# About both frameworks, or about which of them is imported when.
_WITH_TENSORFLOW = [
    "test_callback.py",
    "test_from_tf.py",
    "test_import.py",
    "test_recording.py",
    "test_to_tf.py",
    "test_to_tf_handlers.py",
    "test_with_tensorflow.py",
]
# And about an environment without it.
_WITHOUT_TENSORFLOW = ["test_without_tensorflow.py"]

collect_ignore = _WITHOUT_TENSORFLOW if TENSORFLOW else _WITH_TENSORFLOW
