"""`hostcall.jax.from_tf`: TensorFlow functions in JAX programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from hostcall._bridges import four_bits
from hostcall._functions import source_location, specs
from hostcall._tf import eager_execution
from hostcall.jax import _call, _primitive, _values
from hostcall.jax._functions import JaxFunction


def convert(
    tf_fn: Callable[..., Any], *, result: Any, ordered: bool, pure: bool, vmap_method: str | None
) -> Callable[..., Any]:
    """Implement `hostcall.jax.from_tf`."""
    if not callable(tf_fn):
        raise TypeError(f"hostcall.jax.from_tf wants a function, and not {tf_fn!r}.")
    if _values.is_jitted(tf_fn):
        raise TypeError(f"hostcall.jax.from_tf: {tf_fn!r} is a function of JAX's. Call it itself.")
    title = str(getattr(tf_fn, "__name__", "") or "a TensorFlow function")
    _call.check_vmap_method(vmap_method, title)
    options = title, _call.effect_of(ordered, pure, title), vmap_method
    traced = tf_fn if hasattr(tf_fn, "get_concrete_function") else tf.function(tf_fn)
    description = source_location.of_function(getattr(tf_fn, "python_function", tf_fn))
    functions: dict[Any, _FlatFunction] = {}

    def call(*args: Any) -> object:
        place = f"hostcall.jax.from_tf of {description}, called at {source_location.caller()}"
        leaves, tree = jax.tree.flatten(args)
        arrays = [_values.data_of(_call.as_array(leaf, place)) for leaf in leaves]
        function = functions.get(tree) or functions.setdefault(tree, _FlatFunction(traced, tree))
        declared = result
        if specs.is_shape_function(declared):
            structs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
            declared = declared(*jax.tree.unflatten(tree, structs))
        known = None if declared is None else _call.flatten_results(declared, place)[0]
        called = _call_flat(function, arrays, known, options, place)
        return jax.tree.unflatten(function.out_tree, called)

    functools.update_wrapper(call, tf_fn, updated=())
    return call


# The title of the calls, their effect and their vmap_method.
_Options = tuple[str, Any | None, str | None]


class _FlatFunction:
    """A TensorFlow function of flat tensors; tracing it sets `out_tree`, the results' structure."""

    def __init__(self, function: Callable[..., Any], tree: Any) -> None:
        self.out_tree: Any = None

        def flat(*tensors: Any) -> list[Any]:
            leaves, self.out_tree = jax.tree.flatten(function(*jax.tree.unflatten(tree, tensors)))
            return [tf.convert_to_tensor(leaf) for leaf in leaves]

        self.traced = tf.function(flat, autograph=False)
        self._gradients: dict[Any, _FlatFunction] = {}

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run the function on arrays."""

        def run() -> list[Any]:
            returned = self.traced(*map(tf.constant, arrays))
            return [_values.canonical(tensor.numpy()) for tensor in returned or ()]

        return eager_execution.apart(run)  # type: ignore[no-any-return]

    def results(
        self, arrays: Sequence[Any], place: str, declared: list[Any] | None
    ) -> list[jax.ShapeDtypeStruct]:
        """Return the declared results for these arrays, or those that TensorFlow's trace has."""
        known = [tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for array in arrays]
        traced = eager_execution.apart(self.traced.get_concrete_function, *known)
        # `outputs` also gets the values that gradients need.
        outputs = list(traced.structured_outputs or ())
        if four_bits.has_four_bits(value.dtype for value in (*known, *outputs)):
            four_bits.check_compiled(traced, place)
        if declared is not None:
            return self._checked(declared, outputs, place)
        for output in outputs:
            _call.check_numbers(output.dtype.as_numpy_dtype, place)
            if not output.shape.is_fully_defined():
                raise ValueError(
                    f"{place}: TensorFlow knows no more of a result's shape than {output.shape}, "
                    "and JAX needs every size. Call set_shape([...]) on it in the function, or "
                    "declare the results:\n\n    hostcall.jax.from_tf(function, "
                    "result=lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))"
                )
        return [_struct(output.shape, output.dtype.as_numpy_dtype) for output in outputs]

    def _checked(self, declared: list[Any], outputs: list[Any], place: str) -> list[Any]:
        of_outputs = [_struct((), output.dtype.as_numpy_dtype).dtype for output in outputs]
        if [struct.dtype for struct in declared] != of_outputs:
            raise ValueError(
                f"{place}: results are declared of the dtypes {[str(s.dtype) for s in declared]}, "
                f"and the function returns {[str(dtype) for dtype in of_outputs]}."
            )
        return declared

    def gradient(self, floats_in: tuple[bool, ...], floats_out: tuple[bool, ...]) -> _FlatFunction:
        """Return the function from arguments and upstream gradients to gradients, all of floats."""
        key = floats_in, floats_out
        if key not in self._gradients:
            count = len(floats_in)

            def gradient(*tensors: Any) -> list[Any]:
                sources = list(compress(tensors[:count], floats_in))
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    targets = list(compress(self.traced(*tensors[:count]), floats_out))
                zero = tf.UnconnectedGradients.ZERO
                given = tape.gradient(targets, sources, list(tensors[count:]), zero)
                return [tf.convert_to_tensor(value) for value in given]

            tree = jax.tree.structure((0,) * (count + sum(floats_out)))
            self._gradients[key] = _FlatFunction(gradient, tree)
        return self._gradients[key]


def _call_flat(
    function: _FlatFunction,
    arrays: Sequence[Any],
    known: list[jax.ShapeDtypeStruct] | None,
    options: _Options,
    place: str,
) -> list[Any]:
    """Return the results of a call, which JAX can differentiate."""
    title, effect, vmap_method = options
    results = function.results(arrays, place, known)
    floats_in, floats_out = (tuple(map(_values.is_float, each)) for each in (arrays, results))
    in_tree = jax.tree.structure(tuple(arrays))
    out_tree = jax.tree.structure(list(results))
    target = JaxFunction(
        function, description=place, in_tree=in_tree, out_tree=out_tree, title=title
    )

    def bind(*flat: Any) -> list[Any]:
        return _primitive.bind(target, flat, results, effect, vmap_method)

    if not (any(floats_in) and any(floats_out)):
        return bind(*arrays)
    called = jax.custom_vjp(bind)

    def backward(flat: Any, upstream: Any) -> tuple[Any, ...]:
        gradient = function.gradient(floats_in, floats_out)
        flat = list(map(jnp.asarray, flat))  # JAX keeps constants in types of its own
        # TensorFlow's gradients of complex values are the conjugates of JAX's.
        given = [*flat, *map(jnp.conj, compress(upstream, floats_out))]
        shapes = [_struct(value.shape, value.dtype) for value in compress(flat, floats_in)]
        about = f"the gradient of {place}"
        gradients = iter(_call_flat(gradient, given, shapes, options, about))
        return tuple(
            jnp.conj(next(gradients)) if is_float else np.zeros(value.shape, jax.dtypes.float0)
            for value, is_float in zip(flat, floats_in, strict=True)
        )

    called.defvjp(lambda *flat: (called(*flat), flat), backward)
    return list(called(*arrays))


def _struct(shape: Any, dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))
