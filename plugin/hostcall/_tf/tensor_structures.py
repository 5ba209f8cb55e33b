"""Structures of tensors, and sub-byte dtypes at the boundaries of clusters.

XLA packs two sub-byte values into a byte. TensorFlow does not, and would misread them when it
passes values to or from a compiled program. So they cross the boundary as integers of eight bits.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import features

# The dtypes in which values of sub-byte dtypes cross.
WIDE = {
    tf.as_dtype(sub_byte).as_datatype_enum: tf.as_dtype(wide).as_datatype_enum
    for sub_byte, wide in (("int4", "int8"), ("uint4", "uint8"))
}


def wide(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which values of a dtype cross the boundary of a compiled program."""
    return tf.as_dtype(WIDE.get(dtype.as_datatype_enum, dtype.as_datatype_enum))


CompositeTensor = features.CompositeTensor
TypeSpec = tf.TypeSpec
flatten_up_to = features.flatten_up_to
convert_variables_to_tensors = features.convert_variables_to_tensors
type_spec_of = features.type_spec_from_value


def encoded(spec: tf.TypeSpec) -> bytes:
    """Return a TypeSpec in TensorFlow's encoding for SavedModels."""
    data: bytes = features.encode_structure(spec).SerializeToString(deterministic=True)
    return data


def decoded(data: bytes) -> Any:
    """Return the TypeSpec in the bytes of `encoded`; TensorFlow may raise any class of errors."""
    spec = features.decode_structure(features.struct_pb2.StructuredValue.FromString(data))
    if not isinstance(spec, TypeSpec):
        raise TypeError(f"{type(spec).__name__} is no TypeSpec")
    return spec


def is_within(spec: tf.TypeSpec, wanted: tf.TypeSpec) -> bool:
    """Return whether another TypeSpec accepts all values of a TypeSpec; names do not count."""
    if isinstance(spec, tf.TensorSpec) and isinstance(wanted, tf.TensorSpec):
        same: bool = spec.dtype == wanted.dtype and spec.shape.is_subtype_of(wanted.shape)
        return same
    return bool(spec.is_subtype_of(wanted))


def paths_of(structure: object) -> list[tuple[Any, ...]]:
    """Return, for each leaf of a structure, the indices and keys that lead to it."""
    return [path for path, _ in features.flatten_with_tuple_paths(structure)]
