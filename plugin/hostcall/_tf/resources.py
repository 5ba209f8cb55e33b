"""What graphs know of variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import features, names


def shape_of_variable(handle: Any) -> tf.TensorShape:
    """The shape of the variable of a handle, a tensor of a graph."""
    if not features.TRACING.available:
        return tf.TensorShape(None)
    data = names.handle_data(handle)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return tf.TensorShape(None)
    return tf.TensorShape(data.shape_and_type[0].shape)
