"""What calls are declared to return, in JAX's terms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hostcall._functions import specs
from hostcall._functions.specs import BoundedSpec
from hostcall.jax import _keys, _values


def flatten_results(declared: object, place: str) -> tuple[list[jax.ShapeDtypeStruct], Any]:
    """The leaves of a declared result, checked, and its structure.

    Args:
      declared: a pytree.
      place: what is called, and where, for messages.
    """
    leaves, tree = jax.tree.flatten(declared)
    return [_as_struct(leaf, place) for leaf in leaves], tree


def _as_struct(leaf: Any, place: str) -> jax.ShapeDtypeStruct:
    if specs.is_dtype(leaf):
        name = f"jnp.{np.dtype(getattr(leaf, 'as_numpy_dtype', leaf))}"
        raise TypeError(
            f"{place}: a result {specs.lacking(leaf)}. Write jax.ShapeDtypeStruct((), {name}) for "
            f"one number, jax.ShapeDtypeStruct((3,), {name}) for three."
        )
    if isinstance(leaf, type) or not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        raise TypeError(
            f"a result is declared as {leaf!r}, and not as a jax.ShapeDtypeStruct(shape, "
            f"dtype): {place}."
        )
    if isinstance(leaf, BoundedSpec):
        raise ValueError(
            f"{place}: a result is declared as the BoundedSpec {leaf}, and JAX has no arrays whose "
            "size only the call tells. Return an array of the largest size, and the true size as "
            "one more result."
        )
    dtype = getattr(leaf.dtype, "as_numpy_dtype", leaf.dtype)
    if _keys.is_key(dtype):
        return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)
    check_numbers(dtype, place)
    try:
        _values.check_dtype(dtype)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)


def check_numbers(dtype: Any, place: str) -> None:
    """Raises a TypeError for a dtype of what is no number, such as strings."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"{place}: a result is declared as {dtype}, which NumPy does not have.")
    if np.dtype(dtype).kind in "OSUTmM":
        raise TypeError(
            f"{place}: a result is of dtype {np.dtype(dtype)}, and JAX has arrays of numbers alone."
        )


def _sizes(shape: Any, place: str) -> tuple[Any, ...]:
    """The sizes of a shape, which may be symbolic."""
    sizes = specs.sizes_of(shape)
    if sizes is None or any(size is None for size in sizes):
        known = "<unknown>" if sizes is None else sizes
        raise ValueError(
            f"{place}: a result is declared with the shape {known}, and JAX needs every size. "
            "Declare it as a function of the arguments: result=lambda x: tf.TensorSpec(x.shape, "
            "x.dtype) or, for hostcall.jax.call, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)."
        )
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ValueError(
            f"{place}: a result is declared with the shape {sizes}, of which a size is negative."
        )
    return sizes
