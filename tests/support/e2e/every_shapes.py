"""Asks TensorFlow's shape functions what is known of the results of an op before it runs."""

import functools
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

_RANKS = (1, 2, 0, 4, 3)
_MOST_TRIALS = 150
_PREFERRED = (tf.float32, tf.int32, tf.int64, tf.bool, tf.complex64)
_HELD_ELSEWHERE = (tf.string, tf.resource, tf.variant)


def dtypes(definition: Any) -> set[tf.DType]:
    """The dtypes of what goes in and comes out, numbers wherever an op takes some."""
    attrs = {attr.name: attr for attr in definition.attr}
    found: set[tf.DType] = set()
    for arg in (*definition.input_arg, *definition.output_arg):
        if arg.type:
            found.add(tf.as_dtype(arg.type))
        else:
            found.add(_dtype(attrs[arg.type_attr or arg.type_list_attr]))
    return found


def are_known(definition: Any) -> bool | None:
    """Return whether the shapes of an op's results follow from those of its operands.

    Operands of integers may be known when XLA compiles, as sizes and axes are.

    Returns:
      None where the op takes none of the shapes that are tried.
    """
    attrs = {
        attr.name: _attr(attr) for attr in definition.attr if not attr.HasField("default_value")
    }
    inputs = [dtype for arg in definition.input_arg for dtype in _dtypes(arg, definition, attrs)]
    accepted = None
    with tf.Graph().as_default() as graph:
        operand = functools.cache(_operand)
        for constant in (False, True):
            for ranks in itertools.islice(_ranks(len(inputs)), _MOST_TRIALS):
                operands = [operand(d, r, constant) for d, r in zip(inputs, ranks, strict=True)]
                try:
                    made = graph._create_op_internal(definition.name, operands, attrs=attrs)
                except (ValueError, TypeError, NotImplementedError, tf.errors.OpError):
                    continue
                accepted = accepted or False
                if all(result.shape.is_fully_defined() for result in made.outputs):
                    return True
    return accepted


def _ranks(count: int) -> Any:
    """Ranks for some operands: first the same for all, then all combinations of the common ones."""
    yield from ((rank,) * count for rank in _RANKS)
    if count > 1:
        yield from itertools.product(_RANKS[:3], repeat=count)
        yield from itertools.product(_RANKS[:4], repeat=count)


def _operand(dtype: tf.DType, rank: int, constant: bool) -> tf.Tensor:
    if constant and dtype in (tf.int32, tf.int64):
        return tf.constant(np.full([2] * rank, 1), dtype)
    return tf.compat.v1.placeholder(dtype, [2] * rank)


def _dtypes(arg: Any, definition: Any, attrs: dict[str, Any]) -> list[tf.DType]:
    """The dtypes of an argument, of which it has several where it is a list."""
    every = {attr.name: attr for attr in definition.attr}

    def value(name: str) -> Any:
        return attrs[name] if name in attrs else every[name].default_value

    if arg.type_list_attr:
        return [tf.as_dtype(number) for number in value(arg.type_list_attr).list.type]
    dtype = tf.as_dtype(arg.type or value(arg.type_attr).type)
    return [dtype] * (value(arg.number_attr).i if arg.number_attr else 1)


def _dtype(attr: Any) -> tf.DType:
    """A dtype that an attribute may have, of numbers if it may."""
    allowed = [tf.as_dtype(number) for number in attr.allowed_values.list.type]
    if not allowed:
        return tf.float32
    numbers = [dtype for dtype in allowed if dtype not in _HELD_ELSEWHERE]
    return next((dtype for dtype in _PREFERRED if dtype in allowed), (numbers or allowed)[0])


def _attr(attr: Any) -> Any:
    """A value for an attribute that has no default."""
    value = tf.compat.v1.AttrValue()
    least = max(attr.minimum, 1) if attr.has_minimum else 1
    kind = attr.type.removeprefix("list(").removesuffix(")")
    target = value.list if attr.type.startswith("list(") else value
    several = target is not value
    if kind == "type":
        number = _dtype(attr).as_datatype_enum
        target.type.extend([number] * least) if several else setattr(value, "type", number)
    elif kind == "int":
        target.i.extend([1] * max(least, 4)) if several else setattr(value, "i", least)
    elif kind == "float":
        target.f.extend([1.0] * least) if several else setattr(value, "f", 1.0)
    elif kind == "bool":
        target.b.extend([False] * least) if several else setattr(value, "b", False)
    elif kind == "string":
        allowed = attr.allowed_values.list.s
        text = allowed[0] if allowed else b""
        target.s.extend([text] * least) if several else setattr(value, "s", text)
    elif kind == "shape":
        shape = tf.TensorShape([2]).as_proto()
        target.shape.extend([shape] * least) if several else value.shape.CopyFrom(shape)
    elif kind == "tensor":
        value.tensor.CopyFrom(tf.make_tensor_proto([1.0, 2.0]))
    return value
