"""The gradient that the user has given a callback, for calls of whole batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._frontend import custom_gradients


def of_batch(spec: CallbackSpec, shared: Sequence[bool]) -> Callable[..., list[Any]]:
    """`spec.grad` for a batch, each argument of which has its elements as its first axis.

    Args:
      spec: that of a call for one element.
      shared: for each of the op's inputs, whether that axis has size 1, as the argument is the same
        for all elements.
    """
    grad, inputs, outputs = spec.grad, spec.inputs, spec.outputs
    assert grad is not None

    def gradient(arguments: Any, results: Any, upstream: Any) -> list[Any]:
        places: list[int] = []

        def one(element: Any) -> list[Any]:
            tensors, called, dy = element
            given = grad(tuple(inputs.pack(tensors)), outputs.pack(called), outputs.pack(dy))
            gradients = inputs.flatten_gradients(given)
            custom_gradients.check(gradients, tensors, grad)
            places[:] = [i for i, one in enumerate(gradients) if one is not None]
            return [tf.convert_to_tensor(gradients[i], tensors[i].dtype) for i in places]

        flat = tf.nest.flatten(list(arguments), expand_composites=True)
        elements = (flat, outputs.unpack(results), outputs.unpack(upstream))
        mapped = tf.vectorized_map(one, elements, warn=False)
        gradients: list[Any] = [None] * len(flat)
        for place, value in zip(places, mapped, strict=True):
            # What is the same for all elements gets what they say together.
            gradients[place] = tf.reduce_sum(value, 0, keepdims=True) if shared[place] else value
        return list(inputs.pack(gradients))

    return gradient
