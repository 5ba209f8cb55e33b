"""Specs: what the user says of results, in the terms of `tf.TensorSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf

from hostcall._functions.specs import BoundedSpec as BoundedSpec
from hostcall._functions.specs import Declared, lacking, says_shape_and_dtype, sizes_of
from hostcall._functions.specs import is_shape_function as is_shape_function
from hostcall._tf import tensor_structures

# Dtypes of tensors that lie in no array, or in one of Python objects.
_NOT_IN_ARRAYS = (tf.string, tf.variant, tf.resource)


Spec: TypeAlias = tf.TensorSpec | BoundedSpec


def is_leaf(value: object) -> bool:
    """True for what stands for one tensor in a declaration."""
    return isinstance(value, tf.TensorShape) or _says_both(value)


def check_integers(value: object, dtype: tf.DType) -> None:
    """Raises a ValueError for integers of Python's in a value that a dtype does not hold.

    TensorFlow would take their lower bits, without a word.
    """
    if dtype.is_integer:
        for number in (value,) if isinstance(value, int) else tf.nest.flatten(value):
            if isinstance(number, int) and not dtype.min <= number <= dtype.max:
                raise ValueError(f"{dtype.name} does not hold {number}")


def as_spec(value: object, dtype: tf.DType | None) -> Spec:
    """One result of a declaration as a spec.

    Args:
      value: a TensorSpec, a BoundedSpec, anything else with a shape and a dtype, such as a
        `jax.ShapeDtypeStruct`, or a shape in any form that TensorSpec takes.
      dtype: what the op says of the dtype; None where the declaration has to say it.

    Raises:
      TypeError: when `value` is none of these, or has no dtype and none is given.
    """
    if isinstance(value, BoundedSpec):
        return value
    if _says_both(value):
        return tf.TensorSpec(sizes_of(value.shape), value.dtype)
    if dtype is None:
        raise TypeError(
            f"hostcall: a result {lacking(value)}. Write "
            "tf.TensorSpec([3], tf.float32), for one, or result=[] where the function returns "
            "nothing."
        )
    try:
        return tf.TensorSpec(value, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"hostcall: a result is declared as a tf.TensorSpec, a hostcall.BoundedSpec or a "
            f"shape, and not as {value!r}."
        ) from error


def array_dtype(dtype: tf.DType) -> np.dtype[Any] | None:
    """The dtype of arrays that hold what tensors of a dtype do; None for strings and handles."""
    return None if dtype in _NOT_IN_ARRAYS else np.dtype(dtype.as_numpy_dtype)


def is_array_of(value: object, dtype: np.dtype[Any] | None) -> TypeGuard[np.ndarray]:
    """Whether a value is an array of this dtype, one of `array_dtype`, and no subclass of one."""
    # NumPy takes None for float64.
    return type(value) is np.ndarray and dtype is not None and value.dtype == dtype


def admits(spec: Spec, shape: Sequence[int]) -> bool:
    """Whether a result may have this shape."""
    if not static_shape(spec).is_compatible_with(shape):
        return False
    return not isinstance(spec, BoundedSpec) or all(
        shape[dim] <= spec.shape[dim] for dim in spec.dynamic_dims
    )


def merge(first: Spec, second: Spec | None) -> Spec:
    """A spec that says what both say; the bounds are those of the first that has any.

    Raises:
      ValueError: when they contradict each other.
    """
    if second is None:
        return first
    shape = static_shape(first).merge_with(static_shape(second))
    for spec in (first, second):
        if isinstance(spec, BoundedSpec):
            sizes = [spec.shape[i] if size is None else size for i, size in enumerate(shape)]
            dynamic = [i for i in spec.dynamic_dims if shape[i] is None]
            return BoundedSpec(sizes, spec.dtype, dynamic)
    return tf.TensorSpec(shape, first.dtype)


def static_shape(spec: Spec) -> tf.TensorShape:
    """The shape that is known of all tensors of `spec`: None for dynamic dimensions."""
    return (spec.tensor_spec() if isinstance(spec, BoundedSpec) else spec).shape


def _says_both(value: object) -> TypeGuard[Declared]:
    if isinstance(value, tf.TypeSpec | tensor_structures.CompositeTensor):
        return isinstance(value, tf.TensorSpec)  # the others are of several tensors
    return says_shape_and_dtype(value)
