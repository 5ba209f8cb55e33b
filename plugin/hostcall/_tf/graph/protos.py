"""TensorFlow's protocol messages, and attributes of ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import tensorflow as tf

from hostcall._tf import features
from hostcall._tf.types import AnyNode, FunctionDef, ListValue, NodeDef, Operation

attr_value_pb2 = features.attr_value_pb2
function_pb2 = features.function_pb2
node_def_pb2 = features.node_def_pb2
tensor_pb2 = features.tensor_pb2
_Message = TypeVar("_Message")


def copy_of(message: _Message) -> _Message:
    """Return a copy of a message."""
    copy: Any = type(message)()
    copy.CopyFrom(message)
    return copy  # type: ignore[no-any-return]


def is_true(marked: AnyNode | FunctionDef, name: str) -> bool:
    """Return whether a node or a function has an attribute that is true."""
    return name in marked.attr and bool(marked.attr[name].b)


def integer(node: AnyNode, name: str) -> int:
    """Return the integer that an attribute of a node holds, 0 without the attribute."""
    # A look at an attribute that is not there would add one without a value.
    return int(node.attr[name].i) if name in node.attr else 0


def text(node: AnyNode, name: str) -> str:
    """Return the text that an attribute of a node holds, "" without the attribute."""
    return node.attr[name].s.decode() if name in node.attr else ""


def pairs(node: NodeDef, name: str) -> list[tuple[int, int]]:
    """Return the pairs of integers that an attribute of a node holds, [] without the attribute."""
    numbers = node.attr[name].list.i if name in node.attr else ()
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def set_pairs(node: NodeDef, name: str, pairs: Iterable[tuple[int, int]]) -> None:
    """Set an attribute of a node to pairs of integers."""
    numbers = [number for pair in pairs for number in pair]
    node.attr[name].list.CopyFrom(list_value(i=numbers))


def list_value(**values: Any) -> ListValue:
    """Return the value of an attribute that is a list."""
    value: ListValue = attr_value_pb2.AttrValue.ListValue(**values)
    return value


def encoded(spec: tf.TypeSpec) -> bytes:
    """Return a TypeSpec in TensorFlow's encoding for SavedModels."""
    return bytes(features.encode_structure(spec).SerializeToString(deterministic=True))


def decoded(data: bytes) -> tf.TypeSpec:
    """Return the TypeSpec in the bytes of `encoded`; TensorFlow may raise any class of errors."""
    spec = features.decode_structure(features.struct_pb2.StructuredValue.FromString(data))
    if not isinstance(spec, tf.TypeSpec):
        raise TypeError(f"{type(spec).__name__} is not a TypeSpec")
    return spec


def set_attr(op: Operation, name: str, **value: Any) -> None:
    """Set an attribute of a graph's op, e.g. `set_attr(op, "_a", b=True)`."""
    op._set_attr(name, attr_value_pb2.AttrValue(**value))
