"""Whether a call is for TensorFlow or for JAX, which need not be there."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from hostcall._tf import tensor_structures


def is_for_jax(args: tuple[Any, ...]) -> bool:
    """Whether a callback that is called with `args` is called from JAX.

    Raises:
      TypeError: when some are TensorFlow's, and others values of a JAX program.
    """
    jax = sys.modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    assert jax is not None
    leaves = jax.tree.leaves(args, is_leaf=_is_tensorflows)
    if not any(map(_is_tensorflows, leaves)):
        return any(isinstance(leaf, jax.Array) for leaf in leaves) or _is_traced_by_jax()
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            "hostcall.callback: some arguments are TensorFlow's tensors and others are values of a "
            "JAX program that is being traced. Convert the tensors first: jnp.asarray(t.numpy())."
        )
    return False


def _is_tensorflows(value: object) -> bool:
    return isinstance(value, tf.Tensor | tf.Variable | tensor_structures.CompositeTensor)


def _is_traced_by_jax() -> bool:
    """Without arguments that would tell: whether it is JAX's program that is being built."""
    if not tf.executing_eagerly():
        return False
    try:
        from hostcall.jax import _jax_private
    except ImportError:  # a JAX that hostcall.jax does not work with
        return False
    return _jax_private.is_tracing()
