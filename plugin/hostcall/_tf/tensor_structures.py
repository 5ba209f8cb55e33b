"""Structures of tensors, and the TypeSpecs of their leaves."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import names

CompositeTensor = names.CompositeTensor
TypeSpec = tf.TypeSpec
flatten_up_to = names.flatten_up_to
convert_variables_to_tensors = names.convert_variables_to_tensors


def type_spec_of(value: object) -> Any:
    """The TypeSpec of a composite tensor."""
    return names.type_spec_from_value(value)


def encoded(spec: tf.TypeSpec) -> bytes:
    """A TypeSpec as TensorFlow writes it into SavedModels."""
    data: bytes = names.encode_structure(spec).SerializeToString(deterministic=True)
    return data


def decoded(data: bytes) -> Any:
    """The TypeSpec that `encoded` has written.

    Raises:
      Exception: when it is none, whatever TensorFlow comes upon.
    """
    spec = names.decode_structure(names.struct_pb2.StructuredValue.FromString(data))
    if not isinstance(spec, TypeSpec):
        raise TypeError(f"{type(spec).__name__} is no TypeSpec")
    return spec


def is_within(spec: tf.TypeSpec, wanted: tf.TypeSpec) -> bool:
    """Whether all values that one TypeSpec stands for are among those of another; names apart."""
    if isinstance(spec, tf.TensorSpec) and isinstance(wanted, tf.TensorSpec):
        same: bool = spec.dtype == wanted.dtype and spec.shape.is_subtype_of(wanted.shape)
        return same
    return bool(spec.is_subtype_of(wanted))


def paths_of(structure: object) -> list[tuple[Any, ...]]:
    """The indices and keys that lead to each leaf of a structure."""
    return [path for path, _ in names.flatten_with_tuple_paths(structure)]
