"""Something that a Python function holds, and how many of it are alive."""

import gc
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf


class Factor:
    living: ClassVar["weakref.WeakSet[Factor]"] = weakref.WeakSet()
    value = np.float32(3.0)

    def __init__(self) -> None:
        Factor.living.add(self)

    def times(self, x: Any) -> Any:
        return x * self.value

    def spec(self, x: Any) -> Any:
        return tf.TensorSpec(x.shape, x.dtype)


def living() -> int:
    gc.collect()
    return len(Factor.living)


@pytest.fixture(autouse=True)
def none_from_before() -> None:
    assert living() == 0
