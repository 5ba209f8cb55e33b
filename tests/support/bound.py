"""What the tests of `hostcall.bind` share."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

X = np.array([1.0, 2.0, 3.0], np.float32)
SPEC = tf.TensorSpec([3], tf.float32)


def add_one(x: np.ndarray) -> np.ndarray:
    return x + np.float32(1)


def program(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(add_one, [x], tf.TensorSpec(x.shape, x.dtype)) * 2.0


def cube(x: tf.Tensor) -> tf.Tensor:
    return tf.py_function(lambda v: v**3, [x], tf.TensorSpec(x.shape, x.dtype))


@pytest.fixture
def usual_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ConcreteFunctions that are called the usual way."""
    calls = []
    kind = type(tf.function(lambda: 0).get_concrete_function())
    call = kind.__call__

    def note(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(kind, "__call__", note)
    return calls
