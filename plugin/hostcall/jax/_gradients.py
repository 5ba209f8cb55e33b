"""Gradients that the user gives a `hostcall.callback`, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hostcall._functions import frameworks, source_location
from hostcall.jax import _keys
from hostcall.jax._functions import Function
from hostcall_runtime._words import counted


def call(
    bind: Callable[[Any], list[Any]],
    grad: Callable[..., Any],
    function: Function,
    arrays: Sequence[Any],
) -> list[Any]:
    """The results of `bind(arrays)`, whose gradient is what `grad` computes.

    Args:
      bind: makes the call; takes and returns flat lists.
      grad: `grad(inputs, results, upstream)`, structures in, a gradient for each argument out.
      function: what is called.
      arrays: its flat arguments.
    """
    called = jax.custom_vjp(lambda *flat: bind(flat))

    def forward(*flat: Any) -> Any:
        results = called(*flat)
        return results, (flat, results)

    def backward(kept: Any, upstream: Any) -> Any:
        flat, results = kept
        flat = list(map(jnp.asarray, flat))  # JAX keeps constants in forms of its own
        inputs = jax.tree.unflatten(function.in_tree, flat)
        real = [_without_float0(u, result) for u, result in zip(upstream, results, strict=True)]
        pack = function.out_tree.unflatten
        given = _gradients(grad, function, inputs, pack(results), pack(real))
        return tuple(_as_cotangent(*pair) for pair in zip(given, flat, strict=True))

    called.defvjp(forward, backward)
    results: list[Any] = called(*arrays)
    return results


def _gradients(
    grad: Callable[..., Any], function: Function, inputs: Any, results: Any, upstream: Any
) -> list[Any]:
    """What `grad` returns, flat: an entry for each leaf of the inputs."""
    try:
        given = grad(inputs, results, upstream)
    except Exception as error:
        if _comes_from_tensorflow(error):
            raise _wants_jax(function) from error
        raise
    if not isinstance(given, list | tuple):
        given = [given]
    if len(given) != len(inputs):
        raise ValueError(
            f"hostcall: grad of {function.description} returned {counted(len(given), 'gradient')} "
            f"for {counted(len(inputs), 'argument')}. Return one for each argument, and None "
            "for those that have none."
        )
    flat: list[Any] = []
    for argument, gradient in zip(inputs, given, strict=True):
        leaves = jax.tree.structure(argument)
        flat += [None] * leaves.num_leaves if gradient is None else leaves.flatten_up_to(gradient)
    if any(map(frameworks.is_tensorflows, flat)):
        raise _wants_jax(function)
    return flat


def _without_float0(upstream: jax.Array | np.ndarray, result: Any) -> Any:
    """JAX's gradient of an integer has no bytes; `grad` is given zeros. Keys have no zeros."""
    has_no_bytes = upstream.dtype == jax.dtypes.float0 and not _keys.is_key(result.dtype)
    return jnp.zeros_like(result) if has_no_bytes else upstream


def _as_cotangent(gradient: Any, value: Any) -> Any:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return np.zeros(value.shape, jax.dtypes.float0)
    return jnp.zeros_like(value) if gradient is None else jnp.asarray(gradient)


def _comes_from_tensorflow(error: BaseException) -> bool:
    directories = source_location.directories_of("tensorflow")
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(directories):
            return True
        trace = trace.tb_next
    return False


def _wants_jax(function: Function) -> TypeError:
    return TypeError(
        f"hostcall: the gradient of {function.description} is TensorFlow code, and it is asked for "
        "in JAX, with JAX's arrays. Make it a hostcall.callback of its own, or write it without "
        "names of TensorFlow's, as in `lambda inputs, results, upstream: upstream * results`: "
        "either works in both."
    )
