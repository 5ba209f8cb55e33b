"""Captured tensors whose values a compiled function may be compiled with.

A function takes the EagerTensors that it captures as arguments. XLA gets the values of those that
it has to know when it compiles; what hostcall decides, it decides before that. The values never
change. So they are noted at the arguments, where `_compiler/constants.py` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from hostcall._ops import settings
from hostcall._tf import eager_execution
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FuncGraph

# Larger ones are data rather than sizes and indices.
LARGEST_BYTES = 1 << 20
_SIZES_AND_INDICES = frozenset({tf.bool, tf.int32, tf.int64})


def note_constants(graph: FuncGraph, attrs: Mapping[str, Any] | None) -> None:
    """Note the values of captured integers at the arguments of a function that hostcall changes."""
    captured = {}
    if _must_compile(attrs):
        for outer, inner in graph.captures:
            if inner.dtype in _SIZES_AND_INDICES and _is_small_constant(outer):
                captured[inner.op.name] = outer
    if captured and not _may_be_changed(graph):
        captured = {}
    for argument in graph.inputs:
        if argument.dtype not in _SIZES_AND_INDICES:
            continue
        op = argument.op
        if (tensor := captured.get(op.name)) is not None:
            value = tf.make_tensor_proto(tensor.numpy())
            protos.set_attr(op, attributes.CAPTURED, tensor=value)
        elif attributes.CAPTURED in op.node_def.attr:
            op._clear_attr(attributes.CAPTURED)  # it is that of a graph of which this one is a copy


def _must_compile(attrs: Mapping[str, Any] | None) -> bool:
    value = (attrs or {}).get(defs.MUST_COMPILE)
    return bool(getattr(value, "b", value))


def _is_small_constant(tensor: Any) -> bool:
    """Return whether a captured tensor is an EagerTensor, and no large one."""
    if type(tensor) is not eager_execution.EagerTensor or tensor.is_packed:
        return False
    return bool(tensor.shape.num_elements() * tensor.dtype.size <= LARGEST_BYTES)


def _may_be_changed(graph: FuncGraph) -> bool:
    """Return whether hostcall may change the function of a graph: it does for what XLA lacks."""
    return settings.current.functions == settings.ALL or any(
        node.op in op_kinds.SCRIPT_OPS or not op_kinds.has_xla_kernel(node)
        for node in _kinds(graph, set())
    )


def _kinds(graph: Any, seen: set[str]) -> Iterator[Any]:
    """Yield a node of each kind in a graph, and in the graphs of the functions that it calls."""
    arguments = {tensor.op.name for tensor in graph.inputs}
    for op in graph.get_operations():
        if op.type not in seen and op.name not in arguments:
            seen.add(op.type)
            yield op.node_def
    for function in graph._functions.values():
        if hasattr(function, "graph"):  # TensorFlow 1's have none
            yield from _kinds(function.graph, seen)
