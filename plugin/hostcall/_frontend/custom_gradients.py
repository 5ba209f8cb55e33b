"""Gradients that the user gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.structures import Inputs, Outputs
from hostcall._functions import source_location
from hostcall._tf import gradient_tapes


def call(
    emit: Callable[[Inputs, Outputs], Any],
    grad: Callable[..., Any],
    inputs: Inputs,
    outputs: Outputs,
) -> Any:
    """The results of `emit(inputs, outputs)`, whose gradient is what `grad` computes.

    Args:
      emit: creates the op and returns its results, packed.
      grad: `grad(inputs, results, upstream)`, structures in, a gradient for each argument out.
      inputs: the arguments.
      outputs: the types of the results.
    """
    # Where the call is in a branch, what `grad` is given must be tensors of the branch.
    tensors = inputs.flat if tf.executing_eagerly() else [tf.identity(t) for t in inputs.flat]
    results: list[Any] = []

    def op(*tensors: Any) -> tuple[list[Any], Callable[..., Any]]:
        inputs.flat = list(tensors)
        called = outputs.unpack(emit(inputs, outputs))

        def gradient(*dy: Any, variables: Sequence[Any] | None = None) -> Any:
            arguments = tuple(inputs.pack(tensors))
            given = grad(arguments, outputs.pack(results), outputs.pack(dy))
            gradients = inputs.flatten_gradients(given)
            check(gradients, tensors, grad)
            if variables is None:
                return gradients
            # A callback that runs eagerly may read variables: they have no gradient through it.
            return gradients, [None] * len(variables)

        return called, gradient

    # `grad` gets these results, and not those of `emit`: they have the gradient that the next
    # derivative needs.
    results += tf.custom_gradient(op)(*tensors)
    if results and not tf.executing_eagerly():
        gradient_tapes.own_custom_gradient(results[0].op)
    return outputs.pack(results)


def check(gradients: Sequence[Any], tensors: Sequence[Any], grad: Callable[..., Any]) -> None:
    """Checks gradients against what they are of: TensorFlow would pass on whatever they are."""
    for number, (gradient, tensor) in enumerate(zip(gradients, tensors, strict=True)):
        differentiable = tensor.dtype.is_floating or tensor.dtype.is_complex
        if not differentiable or not isinstance(gradient, tf.Tensor | np.ndarray):
            continue
        dtype, shape = tf.as_dtype(gradient.dtype), tf.TensorShape(gradient.shape)
        if dtype != tensor.dtype or not shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"hostcall: grad, {source_location.of_function(grad)}, returned a gradient of "
                f"{dtype.name}{shape} for input {number}, which is "
                f"{tensor.dtype.name}{tensor.shape}. A gradient has the dtype and the shape of "
                "what it is of."
            )
