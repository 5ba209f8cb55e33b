"""Structures of tensors, and dtypes below a byte at their boundaries.

XLA packs two of them in a byte. TensorFlow does not know that when it hands values to a compiled
program or takes them from it, and would mistake them. So they go in and out as integers of eight.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import features
from hostcall._tf.function_defs import add_cast, cast_uses
from hostcall._tf.types import FunctionDef, NodeDef

_WIDE = {
    tf.as_dtype(sub_byte).as_datatype_enum: tf.as_dtype(wide).as_datatype_enum
    for sub_byte, wide in (("int4", "int8"), ("uint4", "uint8"))
}


def wide(dtype: tf.DType) -> tf.DType:
    """The dtype in which values of another go in and out."""
    return tf.as_dtype(_WIDE.get(dtype.as_datatype_enum, dtype.as_datatype_enum))


def widen(host: FunctionDef, clusters: list[Any]) -> None:
    """Casts what goes into the clusters of a function, and what comes out of them.

    Args:
      host: the FunctionDef that calls the clusters.
      clusters: theirs.
    """
    for cluster in clusters:
        signature = cluster.signature
        if not any(arg.type in _WIDE for arg in (*signature.input_arg, *signature.output_arg)):
            continue
        name = signature.name
        call = next(n for n in host.node_def if "f" in n.attr and n.attr["f"].func.name == name)
        _widen_inputs(host, cluster, call)
        _widen_outputs(host, cluster, call)


def _widen_inputs(host: FunctionDef, cluster: FunctionDef, call: NodeDef) -> None:
    for index, arg in enumerate(cluster.signature.input_arg):
        if arg.type in _WIDE:
            sub_byte, wide = arg.type, _WIDE[arg.type]
            value, name = call.input[index], f"{call.name}__in_{index}"
            call.input[index] = add_cast(host, name, value, sub_byte, wide)
            call.attr["Tin"].list.type[index] = arg.type = wide
            cast_uses(cluster, f"{arg.name}__sub_byte", arg.name, wide, sub_byte)


def _widen_outputs(host: FunctionDef, cluster: FunctionDef, call: NodeDef) -> None:
    for index, arg in enumerate(cluster.signature.output_arg):
        if arg.type in _WIDE:
            sub_byte, wide = arg.type, _WIDE[arg.type]
            value, name = cluster.ret[arg.name], f"{arg.name}__wide"
            cluster.ret[arg.name] = add_cast(cluster, name, value, sub_byte, wide)
            call.attr["Tout"].list.type[index] = arg.type = wide
            returned = f"{call.name}:output:{index}"
            cast_uses(host, f"{call.name}__out_{index}", returned, wide, sub_byte)


CompositeTensor = features.CompositeTensor
TypeSpec = tf.TypeSpec
flatten_up_to = features.flatten_up_to
convert_variables_to_tensors = features.convert_variables_to_tensors


def type_spec_of(value: object) -> Any:
    """The TypeSpec of a composite tensor."""
    return features.type_spec_from_value(value)


def encoded(spec: tf.TypeSpec) -> bytes:
    """A TypeSpec as TensorFlow writes it into SavedModels."""
    data: bytes = features.encode_structure(spec).SerializeToString(deterministic=True)
    return data


def decoded(data: bytes) -> Any:
    """The TypeSpec that `encoded` has written.

    Raises:
      Exception: when it is none, whatever TensorFlow comes upon.
    """
    spec = features.decode_structure(features.struct_pb2.StructuredValue.FromString(data))
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
    return [path for path, _ in features.flatten_with_tuple_paths(structure)]
