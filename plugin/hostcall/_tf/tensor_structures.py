"""Structures of tensors, and sub-byte dtypes at the boundaries of clusters.

XLA packs two sub-byte values into a byte. TensorFlow does not, and would misread them when it
passes values to or from a compiled program. So they cross the boundary as integers of eight bits.
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
    """Return the dtype in which values of a dtype cross the boundary of a compiled program."""
    return tf.as_dtype(_WIDE.get(dtype.as_datatype_enum, dtype.as_datatype_enum))


def widen(host: FunctionDef, clusters: list[Any]) -> None:
    """Cast the sub-byte inputs and results of the clusters that `host` calls, at the boundaries."""
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
    """Return the TypeSpec of a composite tensor."""
    return features.type_spec_from_value(value)


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
