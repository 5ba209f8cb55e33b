"""Gradients that the user gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hostcall._structures import Inputs, Outputs


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

    def op(*tensors: Any) -> tuple[list[Any], Callable[..., Any]]:
        inputs.flat = list(tensors)
        results = emit(inputs, outputs)

        def gradient(*dy: Any, variables: Sequence[Any] | None = None) -> Any:
            arguments = tuple(inputs.pack(tensors))
            gradients = inputs.flatten_gradients(grad(arguments, results, outputs.pack(dy)))
            if variables is None:
                return gradients
            # A callback that runs eagerly may read variables: they have no gradient through it.
            return gradients, [None] * len(variables)

        return outputs.unpack(results), gradient

    return outputs.pack(tf.custom_gradient(op)(*inputs.flat))
