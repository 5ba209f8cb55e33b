"""Marks of tests for older versions of TensorFlow, which lack features: see docs/versions.md."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import tensorflow as tf

from tests.support.device import DEVICE


def is_older_than(version: str) -> bool:
    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:2]]

    return numbers(tf.__version__) < numbers(version)


shuffle_is_refused = pytest.mark.skipif(
    not is_older_than("2.22"), reason="XLA shuffles vectors of floats from 2.22 on"
)
of_the_tables = pytest.mark.skipif(
    not is_older_than("2.22"), reason="the tables of XLA's kernels are of TensorFlow 2.21"
)
on_the_callers_thread = pytest.mark.tensorflow(
    "2.20", "XLA runs programs on threads of its own, where Ctrl-C does not come"
)
# Calls from programs on the device of the tests, where that is not the CPU.
calls_from_the_device = pytest.mark.skipif(
    is_older_than("2.20") and DEVICE.startswith("XLA_CPU"),
    reason="XLA runs programs on threads of its own there, and hostcall partitions them",
)
reads_programs_of_jax = pytest.mark.tensorflow(
    "2.20", "JAX's programs are of a newer version than TensorFlow reads"
)
# For the tests' own fake GPU, and not for the GPUs of users.
has_a_fake_gpu = pytest.mark.skipif(
    is_older_than("2.21"),
    reason="the fake GPU takes what its stream does as done, and older streams do it later",
)


def marked(values: Iterable[str], marks: Mapping[str, Any]) -> list[Any]:
    return [pytest.param(value, marks=marks.get(value, ())) for value in values]
