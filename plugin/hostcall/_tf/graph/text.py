"""Attributes of nodes as short text, for people and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_MOST_ELEMENTS = 8  # of a constant that is printed with its values
_MOST_BYTES = 40  # of a string


def attributes(attr: Mapping[str, Any]) -> str:
    """Return attributes as text, sorted by their names, since a message's maps have no order."""
    return ", ".join(f"{name}: {_value(attr[name])}" for name in sorted(attr))


def dtype(number: int) -> str:
    """Return the name of a dtype by its number."""
    return str(tf.as_dtype(number).name) if number else "?"


def _value(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "list":
        found = value.list.ListFields()  # at most one: the elements are of one kind
        return f"[{', '.join(_field(kind.name, one) for kind, many in found for one in many)}]"
    return "?" if kind is None else _field(kind, getattr(value, kind))


def _field(kind: str, value: Any) -> str:
    match kind:
        case "s":
            text = value.decode(errors="backslashreplace")
            return repr(text if len(text) <= _MOST_BYTES else f"{text[:_MOST_BYTES]}...")
        case "type":
            return dtype(value)
        case "b":
            return str(value).lower()
        case "shape":
            return str(tf.TensorShape(value))
        case "func":
            return f"@{value.name}"
        case "tensor":
            return _tensor(value)
    return str(value)


def _tensor(tensor: Any) -> str:
    shape = tf.TensorShape(tensor.tensor_shape)
    if shape.num_elements() > _MOST_ELEMENTS or tensor.dtype == tf.variant.as_datatype_enum:
        return f"{dtype(tensor.dtype)}{shape}"
    return str(tf.make_ndarray(tensor).tolist())
