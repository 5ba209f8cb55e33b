"""What older versions of TensorFlow do not do: see docs/versions.md."""

import pytest
import tensorflow as tf


def is_older_than(version: str) -> bool:
    """Whether TensorFlow here is of an older minor version."""

    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:2]]

    return numbers(tf.__version__) < numbers(version)


on_the_callers_thread = pytest.mark.tensorflow(
    "2.20", "XLA runs programs on threads of its own, where Ctrl-C does not come"
)
# Of the tests' own GPU, and not of what users have.
has_a_fake_gpu = pytest.mark.skipif(
    is_older_than("2.21"),
    reason="the fake GPU takes what its stream does as done, and older streams do it later",
)
