"""What older versions of TensorFlow do not do: see docs/versions.md."""

import pytest

on_the_callers_thread = pytest.mark.tensorflow(
    "2.20", "XLA runs programs on threads of its own, where Ctrl-C does not come"
)
keeps_the_order = pytest.mark.tensorflow(
    "2.20", "XLA has loops and branches wait for the values that they use alone"
)
has_a_fake_gpu = pytest.mark.tensorflow(
    "2.21", "the fake GPU takes what its stream does as done, and older streams do it later"
)
