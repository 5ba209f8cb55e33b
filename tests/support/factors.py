"""Something that a Python function holds, and how many of it are alive."""

import gc
import weakref
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def quick_collector() -> Iterator[None]:
    """The collector need not look at TensorFlow itself again and again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def none_from_before(quick_collector: None) -> None:
    assert living() == 0
