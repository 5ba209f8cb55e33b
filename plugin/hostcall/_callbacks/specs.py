"""Specs: what the user says of results, in the terms of `tf.TensorSpec`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# Dtypes of tensors that lie in no array, or in one of Python objects.
_NOT_IN_ARRAYS = (tf.string, tf.variant, tf.resource)


@dataclasses.dataclass(frozen=True, init=False)
class BoundedSpec:
    """A tensor whose size is known up to a bound when XLA compiles, and exactly when it runs.

    The callback returns an array of any size up to the bound. XLA reserves memory for the bound;
    the program sees the true size: `tf.shape`, reductions, masks and the tensor that the function
    returns.

    Attributes:
      shape: a `tf.TensorShape`; for the dimensions in `dynamic_dims` an upper bound, for the
        others the size.
      dtype: a `tf.DType`.
      dynamic_dims: the dimensions whose size is only bounded, a tuple of ints in rising order.
        Negative ones count from the end. The default is the first dimension.

    Raises:
      ValueError: when a size is unknown or negative, or a dimension is out of range or named twice.

    Examples:
      >>> @hostcall.callback(result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
      ... def distinct(x):
      ...     return np.unique(x)
      >>> program = tf.function(lambda x: 2.0 * distinct(x), jit_compile=True)
      >>> program(tf.constant([3.0, 1.0, 3.0])).numpy()
      array([2., 6.], dtype=float32)
    """

    shape: tf.TensorShape
    dtype: tf.DType
    dynamic_dims: tuple[int, ...]

    def __init__(
        self,
        shape: tf.TensorShape | Iterable[int],
        dtype: tf.DType | npt.DTypeLike,
        dynamic_dims: Iterable[int] = (0,),
    ) -> None:
        dims = tf.TensorShape(shape)
        if not dims.is_fully_defined():
            raise ValueError(
                f"BoundedSpec wants a bound for every dimension, and got the shape {shape}. Write "
                "the largest size that the callback can return, e.g. "
                "hostcall.BoundedSpec([100, 3], tf.float32, dynamic_dims=[0])."
            )
        named = list(dynamic_dims)
        rank = len(dims)
        if any(not -rank <= dim < rank for dim in named):
            raise ValueError(
                f"BoundedSpec: dynamic_dims={named} names a dimension that the shape {dims} does "
                f"not have; it has rank {rank}."
            )
        dynamic = tuple(sorted(dim % rank for dim in named))
        if len(set(dynamic)) != len(dynamic):
            raise ValueError(f"BoundedSpec: dynamic_dims={named} names a dimension twice.")
        object.__setattr__(self, "shape", dims)
        object.__setattr__(self, "dtype", tf.as_dtype(dtype))
        object.__setattr__(self, "dynamic_dims", dynamic)

    def __str__(self) -> str:
        sizes = [f"<={n}" if i in self.dynamic_dims else str(n) for i, n in enumerate(self.shape)]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def tensor_spec(self) -> tf.TensorSpec:
        """The `tf.TensorSpec` of all tensors within the bounds: dynamic dimensions are None."""
        dims = [None if i in self.dynamic_dims else dim for i, dim in enumerate(self.shape)]
        return tf.TensorSpec(dims, self.dtype)


Spec: TypeAlias = tf.TensorSpec | BoundedSpec


def is_leaf(value: object) -> bool:
    """True for what stands for one tensor in a declaration."""
    return isinstance(value, tf.TensorSpec | BoundedSpec | tf.TensorShape | tf.Tensor)


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
      value: a TensorSpec, a BoundedSpec, or a shape in any form that TensorSpec takes.
      dtype: what the op says of the dtype; None where the declaration has to say it.

    Raises:
      TypeError: when `value` is none of these, or has no dtype and none is given.
    """
    if isinstance(value, BoundedSpec):
        return value
    if isinstance(value, tf.TensorSpec | tf.Tensor):
        return tf.TensorSpec(value.shape, value.dtype)
    if dtype is None:
        raise TypeError(
            f"hostcall: a result must say its dtype, and {value!r} does not. Write "
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
