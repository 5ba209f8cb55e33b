"""TensorFlow's protocol messages, and attributes of ops."""

from __future__ import annotations

from typing import Any, TypeVar

from hostcall._tf import features
from hostcall._tf.types import Operation

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


def integer_list(numbers: list[int]) -> Any:
    """Return integers as the value of an attribute."""
    return attr_value_pb2.AttrValue.ListValue(i=numbers)


def shape_list(shapes: list[Any]) -> Any:
    """Return TensorShapeProtos as the value of an attribute."""
    return attr_value_pb2.AttrValue.ListValue(shape=shapes)


def set_attr(op: Operation, name: str, **value: Any) -> None:
    """Set an attribute of a graph's op, e.g. `set_attr(op, "_a", b=True)`."""
    op._set_attr(name, attr_value_pb2.AttrValue(**value))
