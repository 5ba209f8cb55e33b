"""Objects of `hostcall.callback`, called from JAX."""

from __future__ import annotations

import contextlib
from typing import Any

import jax

from hostcall._functions import frameworks, source_location, specs
from hostcall._functions.declaration_checks import check_no_results
from hostcall._functions.frameworks import Parts
from hostcall._functions.vmap_methods import SEQUENTIAL
from hostcall.jax import _effects, _gradients, _keys, _primitive
from hostcall.jax._call import as_array
from hostcall.jax._functions import Function, hashable
from hostcall.jax._results import flatten_results


def call(parts: Parts, args: tuple[Any, ...]) -> Any:
    """The results of a callback for JAX arrays, in the structure of the declared result.

    A stateful callback is an ordered call, any other a pure one, which `jax.vmap` makes one by one
    unless a `vmap_method` is declared.

    Raises:
      TypeError: for an "eager" callback, which takes TensorFlow's tensors.
      ValueError: for a declared result that JAX cannot have: of bounded or unknown size.
    """
    named = f"{parts.name}, " if parts.name is not None else ""
    called_as = f"hostcall.callback of {named}{source_location.of_function(parts.function)}"
    place = f"{called_as}, called at {source_location.caller()}"
    if parts.kind != "numpy":
        raise TypeError(
            f"{place}: it is of kind='eager', so that its function takes TensorFlow's tensors, and "
            "it is called with JAX's arrays. Make it of kind='numpy', the default, or call it in a "
            "TensorFlow function and that by hostcall.jax.from_tf."
        )
    leaves, in_tree = jax.tree.flatten(args)
    arrays = [as_array(leaf, place) for leaf in leaves]
    results, out_tree = flatten_results(_declared(parts, arrays, in_tree), place)
    declared = parts.declaration
    function = Function(
        hashable(parts.function),
        in_tree,
        out_tree,
        parts.name or str(getattr(parts.function, "__name__", "callback")),
        place,
        declared.timeout,
        declared.table,
        declared.borrow,
        declared.out,
        parts.name,
        declared.executor,
        declared.line,
        declared.retries,
        declared.on_device,
        _keys.dtypes_of(results),
        declared.lets_overlap(parts.function),
    )
    check_no_results(declared.line, [spec.dtype for spec in results], parts.stateful, place)

    def bind(flat: Any) -> list[Any]:
        effect, method = _effects.ORDERED if parts.stateful else None, declared.vmap_method
        if not parts.stateful:
            method = method or SEQUENTIAL
        return _primitive.bind(function, flat, results, effect, method)

    if parts.grad is None:
        called = bind(arrays)
    else:
        called = _gradients.call(bind, parts.grad, function, arrays)
    return jax.tree.unflatten(out_tree, called)


def _declared(parts: Parts, arrays: list[Any], in_tree: Any) -> Any:
    """The declared result, a structure of specs."""
    result = parts.declaration.result
    if not specs.is_shape_function(result):
        return result
    tensorflow = frameworks.tensorflow()
    holds_keys = any(_keys.is_key(array.dtype) for array in arrays)
    if tensorflow is not None and not holds_keys:
        known = [tensorflow.spec(_known(array.shape), array.dtype) for array in arrays]
        # It may make specs of JAX's, which take no dtypes and shapes of TensorFlow's.
        with contextlib.suppress(TypeError):
            return result(*jax.tree.unflatten(in_tree, known))
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    return result(*jax.tree.unflatten(in_tree, structs))


def _known(shape: Any) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]
