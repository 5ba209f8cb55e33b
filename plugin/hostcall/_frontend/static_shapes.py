"""What tracing is told of the shapes of results."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import result_shapes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.specs import BoundedSpec, Spec, merge, static_shape
from hostcall._tf import autograph


def note(spec: CallbackSpec) -> None:
    """Notes what is known of the results in tracing: from `Tout` and the shape function."""
    unknown: list[Spec] = [tf.TensorSpec(None, dtype) for dtype in spec.outputs.dtypes]
    said = [declared or none for declared, none in zip(spec.outputs.specs, unknown, strict=True)]
    told = said
    if isinstance(spec, EagerSpec) and not spec.outputs.strict:
        # In the Tout of a py_function TensorFlow takes specs of its own for no more than dtypes.
        pairs = zip(said, unknown, strict=True)
        told = [one if isinstance(one, BoundedSpec) else none for one, none in pairs]
    ruled: Sequence[Spec | None] = [None] * len(unknown)
    if spec.shape_function is not None:
        tensors = [tf.convert_to_tensor(value) for value in spec.inputs.flat]
        operands = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        spec.pending = result_shapes.pending(spec, operands)
        # A shape function may compute with sizes that are not known yet; XLA asks again later.
        with contextlib.suppress(Exception):
            ruled = spec.shape_function(operands)
    spec.static_specs = _merged(said, ruled)
    spec.plain_specs = _merged(told, ruled)


def set_on(results: Sequence[Any], spec: CallbackSpec) -> None:
    """Sets the shapes of symbolic results."""
    told = spec.static_specs if autograph.is_traced_to_compile() else spec.plain_specs
    for result, static in zip(results, told, strict=True):
        result.set_shape(static_shape(static))


def _merged(said: list[Spec], ruled: Sequence[Spec | None]) -> list[Spec]:
    with contextlib.suppress(ValueError):  # XLA will tell of the contradiction
        return [merge(one, other) for one, other in zip(said, ruled, strict=True)]
    return said
