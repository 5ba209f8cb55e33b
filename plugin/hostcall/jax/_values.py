"""Properties of JAX values and dtypes, and conversions of random keys to arrays and back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core as _core

from hostcall.jax import _names
from hostcall_runtime._errors import ResultError


def check_dtype(dtype: Any, place: str) -> None:
    """Raise a ValueError for a dtype that JAX lacks in its current configuration."""
    wanted = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(
            f"{place}: a result is declared as {wanted.name}, which JAX only has with "
            'jax_enable_x64: write jax.config.update("jax_enable_x64", True) at the start of the '
            f"program, or declare {jax.dtypes.canonicalize_dtype(wanted).name}."
        )


def is_taken(value: object) -> bool:
    """Return whether JAX's operations take a value as it is, an array of NumPy's."""
    if type(value) is not np.ndarray:
        return False
    return bool(jax.dtypes.canonicalize_dtype(value.dtype) == value.dtype)


def is_jitted(function: object) -> bool:
    """Return whether `jax.jit` made a function."""
    return hasattr(function, "trace") and hasattr(function, "lower")


def is_tracing() -> bool:
    """Return whether JAX traces a function on this thread now."""
    return _names.has(_names.TRACING) and not _core.trace_state_clean()


def is_float(value: Any) -> bool:
    """Return whether an array, or a spec of one, has floating or complex numbers."""
    return bool(jax.dtypes.issubdtype(value.dtype, np.inexact))


def canonical(array: np.ndarray) -> np.ndarray:
    """Return an array of the dtype that JAX has for it in its current configuration."""
    return np.asarray(array).astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def is_key(dtype: Any) -> bool:
    """Return whether a dtype is one of random keys."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def data_of(array: Any) -> jax.Array:
    """Return the data of keys, and any other array unchanged."""
    return jax.random.key_data(array) if is_key(array.dtype) else array


def struct_of_data(struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """Return the struct of the data of keys, and any other struct unchanged."""
    return jax.eval_shape(jax.random.key_data, struct) if is_key(struct.dtype) else struct


def array_of(data: Any, dtype: Any) -> jax.Array:
    """Return the keys of a dtype for their data, and the data itself for any other dtype."""
    return jax.random.wrap_key_data(data, impl=_impl_of(dtype)) if is_key(dtype) else data


def dtypes_of(results: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, ...]:
    """Return the dtypes of declared results if some are keys, else an empty tuple."""
    dtypes = tuple(result.dtype for result in results)
    return dtypes if any(map(is_key, dtypes)) else ()


def returned(leaf: object, declared: Any, description: str) -> object:
    """Return the data of a result that is declared as keys, and may be keys or data."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return leaf
    if dtype != declared:
        raise ResultError(
            f"a result is of dtype {dtype}, and {declared} is declared. Correct the function or "
            f"the declaration: {description}."
        )
    return data_of(leaf)


@functools.cache
def _impl_of(dtype: Any) -> object:
    """Return the `impl` argument of `jax.random.key` for keys of a dtype."""
    found: list[Any] = []
    jax.eval_shape(
        lambda key: found.append(jax.random.key_impl(key)), jax.ShapeDtypeStruct((), dtype)
    )
    return found[0]
