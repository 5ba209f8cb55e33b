"""The result that a `hostcall.callback` is declared with, as a structure of specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks.specs import BoundedSpec, Spec, as_spec, is_leaf, is_shape_function
from hostcall._callbacks.structures import Inputs


def specs_for(result: Any, inputs: Inputs) -> Any:
    """A declared result for these inputs, as a structure of specs."""
    if is_shape_function(result):
        known = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs.flat]
        try:
            result = result(*inputs.pack_specs(known))
        except Exception:
            # A shape function may compute with sizes that tracing does not know. Ones in their
            # place still tell dtypes and ranks.
            guessed = [tf.TensorSpec(_with_ones(spec.shape), spec.dtype) for spec in known]
            return tf.nest.map_structure(
                _without_sizes, result_leaves(result(*inputs.pack_specs(guessed)))
            )
    return result_leaves(result)


def result_leaves(result: Any) -> Any:
    """A declared result with each leaf as a spec that says its dtype."""
    if is_leaf(result):
        return as_spec(result, None)
    if isinstance(result, dict):
        return {key: result_leaves(value) for key, value in result.items()}
    if isinstance(result, list | tuple) and not _is_shape(result):
        items = [result_leaves(item) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return as_spec(result, None)


def _is_shape(value: Sequence[Any]) -> bool:
    return bool(value) and all(dim is None or isinstance(dim, int) for dim in value)


def _with_ones(shape: tf.TensorShape) -> tf.TensorShape:
    return tf.TensorShape(None if shape.rank is None else [dim or 1 for dim in shape])


def _without_sizes(spec: Spec) -> Spec:
    if isinstance(spec, BoundedSpec):
        spec = spec.tensor_spec()
    rank = spec.shape.rank
    return tf.TensorSpec(None if rank is None else [None] * rank, spec.dtype)
