"""Structures of types as JSON: what arguments and results are made of.

A leaf is null (a tensor of any kind), a dtype by its name, `{"spec": [dtype, shape]}`,
`{"bounded": [dtype, bounds, dimensions]}` or `{"composite": ...}`. Structures are
`{"list": [...]}`, `{"tuple": [...]}`, `{"dict": [[key, item], ...]}` and
`{"namedtuple": [name, fields, items]}`.
"""

from __future__ import annotations

import base64
import collections
from typing import Any

import tensorflow as tf

from hostcall._callbacks.specs import BoundedSpec
from hostcall._tf import tensor_structures


class UnwritableError(ValueError):
    """Something cannot be written into a token; the text says what."""


class UnreadableError(ValueError):
    """JSON stands for no structure; the text says what."""


def write(structure: Any) -> Any:
    """A structure as JSON.

    Raises:
      UnwritableError: when there is something in it that JSON has no words for.
    """
    if structure is None:
        return None
    kind = type(structure)
    if kind in (list, tuple):
        return {kind.__name__: [write(item) for item in structure]}
    if kind in (dict, collections.OrderedDict):
        return {"dict": [[_key(key), write(item)] for key, item in structure.items()]}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        items = [write(item) for item in structure]
        return {"namedtuple": [kind.__name__, list(structure._fields), items]}
    return _write_leaf(structure)


def _write_leaf(leaf: Any) -> Any:
    if isinstance(leaf, BoundedSpec):
        return {"bounded": [leaf.dtype.name, leaf.shape.as_list(), list(leaf.dynamic_dims)]}
    if type(leaf) is tf.TensorSpec:
        return {"spec": [leaf.dtype.name, write_shape(leaf.shape)]}
    if isinstance(leaf, tensor_structures.TypeSpec):
        try:
            return {"composite": base64.b64encode(tensor_structures.encoded(leaf)).decode()}
        except Exception as error:  # whatever the class of somebody else's raises
            raise UnwritableError(f"{leaf!r} cannot be written") from error
    try:
        name: str = tf.as_dtype(leaf).name
    except TypeError:
        raise UnwritableError(f"{type(leaf).__name__} objects cannot be written") from None
    return name


def _key(key: Any) -> Any:
    if type(key) not in (str, int):
        raise UnwritableError(f"the key {key!r} of a dict cannot be written")
    return key


def write_shape(shape: tf.TensorShape) -> list[int | None] | None:
    """A shape as JSON."""
    return None if shape.rank is None else shape.as_list()


def read(value: Any) -> Any:
    """The structure that JSON stands for.

    Raises:
      UnreadableError: when it stands for none.
    """
    try:
        return _read(value)
    except UnreadableError:
        raise
    except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
        raise UnreadableError(f"{str(value)[:100]} is no structure: {error}") from None


def _read(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return tf.as_dtype(value)
    if not isinstance(value, dict) or len(value) != 1:
        raise UnreadableError(f"{str(value)[:100]} is no structure")
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        items = [_read(item) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_key(key): _read(item) for key, item in content}
    if kind == "namedtuple":
        name, fields, items = content
        return collections.namedtuple(name, fields)(*map(_read, items))
    return _read_leaf(kind, content)


def _read_leaf(kind: str, content: Any) -> Any:
    if kind == "spec":
        dtype, shape = content
        return tf.TensorSpec(shape, tf.as_dtype(dtype))
    if kind == "bounded":
        dtype, bounds, dimensions = content
        return BoundedSpec(bounds, tf.as_dtype(dtype), dimensions)
    if kind == "composite":
        try:
            return tensor_structures.decoded(base64.b64decode(content, validate=True))
        except Exception as error:  # TensorFlow's decoder raises what it comes upon
            raise UnreadableError(f"it holds no type of a composite tensor: {error}") from None
    raise UnreadableError(f"{kind!r} is no kind of structure")
