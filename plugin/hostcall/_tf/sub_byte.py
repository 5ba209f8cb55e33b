"""Integers of four bits between clusters, and around programs that are loaded.

XLA packs two of them in a byte. TensorFlow does not know that when it hands values to a compiled
program or takes them from it, and would mistake them. So they go in and out as integers of eight.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf.function_defs import cast_node, replace_value, value_of_cast
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
            outside = cast_node(f"{call.name}__in_{index}", call.input[index], sub_byte, wide)
            host.node_def.append(outside)
            call.input[index] = value_of_cast(outside)
            call.attr["Tin"].list.type[index] = arg.type = wide
            inside = cast_node(f"{arg.name}__sub_byte", arg.name, wide, sub_byte)
            replace_value(cluster, arg.name, value_of_cast(inside))
            cluster.node_def.append(inside)


def _widen_outputs(host: FunctionDef, cluster: FunctionDef, call: NodeDef) -> None:
    for index, arg in enumerate(cluster.signature.output_arg):
        if arg.type in _WIDE:
            sub_byte, wide = arg.type, _WIDE[arg.type]
            inside = cast_node(f"{arg.name}__wide", cluster.ret[arg.name], sub_byte, wide)
            cluster.node_def.append(inside)
            cluster.ret[arg.name] = value_of_cast(inside)
            call.attr["Tout"].list.type[index] = arg.type = wide
            returned = f"{call.name}:output:{index}"
            outside = cast_node(f"{call.name}__out_{index}", returned, wide, sub_byte)
            replace_value(host, returned, value_of_cast(outside))
            host.node_def.append(outside)
