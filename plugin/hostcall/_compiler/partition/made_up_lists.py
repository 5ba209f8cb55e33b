"""Lists in the place of values of type variant that a branch makes up.

A branch that was not taken returns something for each value that the gradient of the others wants.
On the host that is a variant with nothing in it, which TensorFlow can make no zeros of. A list
without elements does as well, since nothing looks at it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf import protos

_INT32 = tf.int32.as_datatype_enum
_VARIANT = tf.variant.as_datatype_enum


def replace(function: Any) -> None:
    """Make lists of the made-up variants of a FunctionDef, which is changed in place."""
    for node in defs.nodes_of(function, {"FakeParam"}):
        if node.attr["dtype"].type != _VARIANT:
            continue
        name = f"{node.name}/hostcall_any"
        controls = [value for value in node.input if value.startswith("^")]
        # With them it runs where the node does, which may be in a branch of TensorFlow 1.
        unknown = protos.node_def_pb2.NodeDef(name=name, op="Const", input=controls)
        unknown.attr["dtype"].type = _INT32
        unknown.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-1, tf.int32))
        function.node_def.append(unknown)
        defs.replace_value(function, f"{node.name}:output:0", f"{node.name}:handle:0")
        node.op = "EmptyTensorList"
        node.attr.clear()
        node.attr["element_dtype"].type = tf.float32.as_datatype_enum
        node.attr["shape_type"].type = _INT32
        node.input[:] = [f"{name}:output:0", f"{name}:output:0", *controls]
