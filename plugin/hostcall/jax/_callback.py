"""Calls of `hostcall.callback` objects from JAX, with their gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hostcall._functions import frameworks, source_location, specs
from hostcall._functions.options import SEQUENTIAL, check_no_results
from hostcall._functions.user_function import UserFunction
from hostcall.jax import _primitive, _values
from hostcall.jax._call import as_array, flatten_results
from hostcall.jax._functions import Function, hashable
from hostcall_runtime._errors import counted


def call_with_gradient(
    bind: Callable[[Any], list[Any]],
    grad: Callable[..., Any],
    function: Function,
    arrays: Sequence[Any],
) -> list[Any]:
    """Return the results of `bind(arrays)`, and let `grad` compute their gradient.

    `bind` takes and returns flat lists; `grad(inputs, results, upstream)` takes structures, and
    returns a gradient for each argument.
    """
    called = jax.custom_vjp(lambda *flat: bind(flat))

    def forward(*flat: Any) -> Any:
        results = called(*flat)
        return results, (flat, results)

    def backward(kept: Any, upstream: Any) -> Any:
        flat, results = kept
        flat = list(map(jnp.asarray, flat))  # JAX keeps constants in types of its own
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
    """Return the gradients that `grad` computes, flat: an entry for each leaf of the inputs."""
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
    """Replace JAX's gradient of an integer, which has no bytes, by zeros. Keys have no zeros."""
    has_no_bytes = upstream.dtype == jax.dtypes.float0 and not _values.is_key(result.dtype)
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


def call(user: UserFunction, args: tuple[Any, ...]) -> Any:
    """Return the results of a callback for JAX arrays, in the structure of the declared result.

    A stateful callback becomes an ordered call, any other one a pure call. `jax.vmap` makes pure
    calls one by one unless a `vmap_method` is declared.

    Raises:
      TypeError: for an "eager" callback, which takes TensorFlow's tensors.
      ValueError: for a declared result that JAX cannot have, of bounded or unknown size.
    """
    named = f"{user.given_name}, " if user.given_name is not None else ""
    called_as = f"hostcall.callback of {named}{source_location.of_function(user.function)}"
    place = f"{called_as}, called at {source_location.caller()}"
    if user.takes_tensors:
        raise TypeError(
            f"{place}: it is of kind='eager', so that its function takes TensorFlow's tensors, and "
            "it is called with JAX's arrays. Make it of kind='numpy', the default, or call it in a "
            "TensorFlow function and that by hostcall.jax.from_tf."
        )
    leaves, in_tree = jax.tree.flatten(args)
    arrays = [as_array(leaf, place) for leaf in leaves]
    declared = user.options
    results, out_tree = flatten_results(_declared(declared.result, arrays, in_tree), place)
    function = Function(
        hashable(user.function),
        declared.with_fields(result=None),
        place,
        stateful=user.stateful,
        given_name=user.given_name,
        in_tree=in_tree,
        out_tree=out_tree,
        title=user.given_name or str(getattr(user.function, "__name__", "callback")),
        result_dtypes=_values.dtypes_of(results),
    )
    check_no_results(declared.line, [spec.dtype for spec in results], user.stateful, place)

    def bind(flat: Any) -> list[Any]:
        effect = _primitive.ORDERED if user.stateful else None
        method = declared.vmap_method or (None if user.stateful else SEQUENTIAL)
        return _primitive.bind(function, flat, results, effect, method)

    if user.grad is None:
        called = bind(arrays)
    else:
        called = call_with_gradient(bind, user.grad, function, arrays)
    return jax.tree.unflatten(out_tree, called)


def _declared(result: Any, arrays: list[Any], in_tree: Any) -> Any:
    """Return the declared result, a structure of specs."""
    if not specs.is_shape_function(result):
        return result
    tensorflow = frameworks.tensorflow()
    holds_keys = any(_values.is_key(array.dtype) for array in arrays)
    if tensorflow is not None and not holds_keys:
        known = [
            tensorflow.spec([n if isinstance(n, int) else None for n in array.shape], array.dtype)
            for array in arrays
        ]
        # The shape function may make JAX's specs, which refuse TensorFlow's dtypes and shapes.
        with contextlib.suppress(TypeError):
            return result(*jax.tree.unflatten(in_tree, known))
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return result(*jax.tree.unflatten(in_tree, structs))
