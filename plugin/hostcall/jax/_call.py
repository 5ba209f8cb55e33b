"""`hostcall.jax.call`: a Python function in a JAX program, and the results it declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from hostcall._functions import frameworks, source_location, specs
from hostcall._functions.options import (
    MAP,
    SharedOptions,
    check_no_results,
    check_side_effects,
    options_of,
    takes,
)
from hostcall._functions.specs import BoundedSpec
from hostcall.jax import _primitive, _sharding, _values
from hostcall.jax._functions import Function, hashable
from hostcall_runtime import _fire_and_forget


def flatten_results(declared: object, place: str) -> tuple[list[jax.ShapeDtypeStruct], Any]:
    """Return the checked leaves of a declared result, and its structure.

    Args:
      declared: a pytree.
      place: the function and the source line of the call, for messages.
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
    if _values.is_key(dtype):
        return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)
    check_numbers(dtype, place)
    try:
        _values.check_dtype(dtype)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    return jax.ShapeDtypeStruct(_sizes(leaf.shape, place), dtype)


def check_numbers(dtype: Any, place: str) -> None:
    """Raise a TypeError for a dtype that is not numeric, such as strings."""
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"{place}: a result is declared as {dtype}, which NumPy does not have.")
    if np.dtype(dtype).kind in "OSUTmM":
        raise TypeError(
            f"{place}: a result is of dtype {np.dtype(dtype)}, and JAX has arrays of numbers alone."
        )


def _sizes(shape: Any, place: str) -> tuple[Any, ...]:
    """Return the sizes of a shape, which may be symbolic."""
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
            f"{place}: a result is declared with the shape {sizes}, which has a negative size."
        )
    return sizes


VMAP_METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


@takes("call", SharedOptions)
def call(
    fn: Callable[..., Any],
    result: Any,
    *args: Any,
    name: str | None = None,
    ordered: bool = False,
    vmap_method: str | None = None,
    sharding: Any = None,
    **options: Unpack[SharedOptions],
) -> Any:
    """Call a Python function; under `jax.jit` and other compilation, whenever the program runs.

    It serves the purposes of `jax.pure_callback` and `jax.experimental.io_callback`, and costs much
    less. In a compiled program hostcall checks the number, dtypes and shapes of the results.

    Args:
      fn: the function. It gets NumPy arrays (NumPy scalars for rank 0) in the structure of `args`,
        which it owns and may write to. It returns arrays of the declared dtypes in the structure of
        `result`. For random keys it gets the result of `jax.random.key_data`, and may return that
        or keys.
      result: the results: a pytree of `jax.ShapeDtypeStruct`, or of other objects with `shape` and
        `dtype`, such as an array or a `tf.TensorSpec`; or a function from the arguments'
        ShapeDtypeStructs to such a pytree. None for no result.
      *args: pytrees of arrays.
      name: the name in messages, profiles and `hostcall.stats`; by default the function's own.
      ordered: whether the call runs after all earlier ordered calls of hostcall.
        `jax.effects_barrier()` waits for it.
      vmap_method: how `jax.vmap` maps the call, as in `jax.pure_callback`; or "map", as in
        `hostcall.declare`.
      sharding: the arrays of a call in a program for several devices. With `jax.P()` or a
        `jax.sharding.SingleDeviceSharding`, the devices make one call with whole arrays. With a
        `jax.NamedSharding`, or with `jax.P("axis")` under `jax.set_mesh`, they make one call for
        each shard. That call takes and returns arrays of the shard's shapes; `result` has those of
        the whole arrays. A pair is for the arguments and for the results. Each of the two can be a
        structure like that of `args` or of `result`. Calls are made in the order of the shards,
        `concurrent` ones at the same time. If one fails, the program fails on all devices.
      **options: {options}

    Returns:
      A pytree of JAX arrays, as `result` declares.

    Raises:
      TypeError: when `fn` is not callable, an argument is no array, or a result has no shape or a
        dtype that JAX lacks. Also when `executor` is neither an executor nor a function, `wait` or
        `concurrent` is no bool, or `sharding` has another form.
      ValueError: for `ordered` with `pure` or `concurrent`, an unknown `vmap_method`, `retries`
        without `pure`, or a dtype of 64 bits while `jax_enable_x64` is off. Also when a call with
        results is differentiated; for `wait=False` with results or `pure`, and for values of
        `queue`, `when_full` and `memory` that `hostcall.declare` refuses. Also where arrays cannot
        be divided as `sharding` says, or it is given inside of `jax.shard_map`.
      NotImplementedError: when a call with a side effect and without `sharding` is compiled for
        several devices among which XLA divides arrays. Also with `sharding` for GPUs, or for
        devices of several processes.
      jax.errors.JaxRuntimeError: when the function raises, or its results are not as declared;
        `hostcall.last_error(e)` is the exception that it raised.

    Examples:
      >>> @jax.jit
      ... def program(x):
      ...     return 2 * hostcall.jax.call(np.sort, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
      >>> program(jnp.array([3.0, 1.0, 2.0]))
      Array([2., 4., 6.], dtype=float32)
    """
    if not callable(fn):
        raise TypeError(f"hostcall.jax.call wants a function, and not {fn!r}.")
    title = str(name or getattr(fn, "__name__", "") or type(fn).__name__)
    called_as = f"{name}, " if name is not None else ""
    called_as += source_location.of_function(fn)
    place = f"hostcall.jax.call of {called_as}, called at {source_location.caller()}"
    divided = MAP if vmap_method == MAP else None
    declared = options_of("call", SharedOptions, dict(options), vmap_method=divided)
    effect = effect_of(ordered, declared.pure, title)
    who = f"hostcall.jax.call of {title}"
    check_side_effects(declared, who, "pure=True", ordered=ordered, pure=declared.pure)
    if divided is None:
        check_vmap_method(vmap_method, title)
    leaves, in_tree = jax.tree.flatten(args)
    arrays = [as_array(leaf, place) for leaf in leaves]
    structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    if specs.is_shape_function(result):
        result = result(*jax.tree.unflatten(in_tree, structs))
    results, out_tree = flatten_results(result, place)
    fn = hashable(fn)
    # All calls of a function share a line.
    line = _fire_and_forget.line_of(fn, declared.wait, declared.queue, declared.when_full)
    check_no_results(line, [spec.dtype for spec in results], not declared.pure, place)
    function = Function(
        fn,
        declared.with_fields(line=line),
        place,
        stateful=not declared.pure,
        given_name=name,
        in_tree=in_tree,
        out_tree=out_tree,
        title=title,
        result_dtypes=_values.dtypes_of(results),
    )

    def bind(arrays: Any, results: Any, joint: tuple[str, ...] | None = None) -> list[Any]:
        return _primitive.bind(function, arrays, results, effect, vmap_method, joint)

    if sharding is None:
        return jax.tree.unflatten(out_tree, bind(arrays, results))
    whole = jax.tree.unflatten(in_tree, structs), jax.tree.unflatten(out_tree, results)
    division = _sharding.read(sharding, *whole, place)
    return jax.tree.unflatten(out_tree, _sharding.bind(division, bind, arrays, results))


def check_vmap_method(method: str | None, title: str) -> None:
    """Raise a ValueError for an unknown `vmap_method`."""
    if method is not None and method not in VMAP_METHODS:
        raise ValueError(f"{title}: vmap_method={method!r} is not one of {VMAP_METHODS}.")


def effect_of(ordered: bool, pure: bool, title: str) -> Any | None:
    """Return the effect of calls with these options; raise a ValueError for a contradiction."""
    if ordered and pure:
        raise ValueError(
            f"{title}: ordered=True says that each call has an effect, and pure=True that it has "
            "none. Take one of the two away."
        )
    if pure:
        return None
    return _primitive.ORDERED if ordered else _primitive.UNORDERED


def as_array(value: Any, place: str) -> Any:
    """Convert an argument to JAX's array; raise a TypeError if JAX or NumPy has no array for it."""
    tensorflow = frameworks.tensorflow()
    if tensorflow is not None and tensorflow.is_symbolic(value):
        raise TypeError(
            f"{place}: {value!r} is a tensor of a tf.function, which JAX cannot compute with. In "
            "TensorFlow call what is TensorFlow's, or a hostcall.callback, or take the whole JAX "
            "function across with hostcall.jax.to_tf."
        )
    try:
        array = jnp.asarray(value)
    except TypeError as error:
        raise TypeError(
            f"{place}: {value!r} is no array, nor a structure of arrays. Give the function what is "
            "not an array by functools.partial."
        ) from error
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) and not _values.is_key(array.dtype):
        raise TypeError(f"{place}: an argument is {array.dtype}, which NumPy does not have.")
    return array
