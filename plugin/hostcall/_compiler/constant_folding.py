"""Folding: calls that can be made when XLA compiles, so that the program holds their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, Recording
from hostcall._callbacks.specs import Spec
from hostcall._tf import protos
from hostcall_runtime import _interception

# Of all results together: a program holds its constants for as long as TensorFlow keeps it.
_LARGEST = 1 << 20

# XLA packs them, which TensorFlow's tensors do not.
_PACKED = ("int2", "uint2", "int4", "uint4")


def is_foldable(spec: CallbackSpec, operands: Sequence[Spec], results: Sequence[Spec]) -> bool:
    """Whether the results may be constants where the operands are."""
    if spec.declaration.table is None or _interception.is_active():
        return False  # each call is recorded, and answered
    specs = [*operands, *results]
    if any(not isinstance(s, tf.TensorSpec) or s.dtype.name in _PACKED for s in specs):
        return False
    return bool(sum(s.shape.num_elements() * s.dtype.size for s in results) <= _LARGEST)


def fold(spec: CallbackSpec, inputs: Sequence[Any], results: Sequence[Spec]) -> list[bytes] | None:
    """Calls the function.

    Args:
      spec: the callback.
      inputs: TensorProtos.
      results: the specs of the results.

    Returns:
      Serialized TensorProtos, or None where the function raises or returns what will not do: the
      program, which may never come to the call, makes it and fails then.
    """
    try:
        arrays = _arrays(spec.host_function(Recording.NO)(*map(_operand, inputs)))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    known = [(result.dtype.as_numpy_dtype, tuple(result.shape)) for result in results]
    if [(array.dtype, array.shape) for array in arrays] != known:
        return None
    return [_proto(array, spec) for array, spec in zip(arrays, results, strict=True)]


def _operand(tensor: tf.Tensor) -> Any:
    array = tf.make_ndarray(tensor)
    return array if array.ndim else array[()]  # as everywhere, a NumPy scalar for rank 0


def _arrays(returned: object) -> list[np.ndarray]:
    values = returned if isinstance(returned, list | tuple) else [returned]
    return [np.asarray(value) for value in values]


def _proto(array: np.ndarray, spec: Spec) -> bytes:
    serialized: bytes = protos.tensor_pb2.TensorProto(
        dtype=spec.dtype.as_datatype_enum,
        tensor_shape=spec.shape.as_proto(),
        tensor_content=array.tobytes(),
    ).SerializeToString()
    return serialized
