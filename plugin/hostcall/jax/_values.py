"""Questions about JAX's values, functions and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core as _core

from hostcall.jax import _names


def check_dtype(dtype: Any) -> None:
    """Raises a ValueError for a dtype that JAX, as it is set up, does not have."""
    wanted = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(
            f"a result is declared as {wanted.name}, which JAX only has with jax_enable_x64: write "
            'jax.config.update("jax_enable_x64", True) at the start of the program, or declare '
            f"{jax.dtypes.canonicalize_dtype(wanted).name}."
        )


def is_jitted(function: object) -> bool:
    """Whether a function is one that `jax.jit` has made."""
    return hasattr(function, "trace") and hasattr(function, "lower")


def is_tracing() -> bool:
    """Whether JAX traces a function on this thread now."""
    return _names.has(_names.TRACING) and not _core.trace_state_clean()


def aval_of(shape: Sequence[Any], dtype: Any) -> Any:
    """What JAX knows of an array of this shape and dtype."""
    return jax.core.ShapedArray(shape, dtype)
