"""`hostcall.jax.to_tf`: JAX functions, with their callbacks, in TensorFlow programs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import tensorflow as tf

from hostcall._bridges import programs
from hostcall._functions import source_location
from hostcall._tf import autograph
from hostcall.jax import _names, _values
from hostcall_runtime import _locks


def convert(
    jax_fn: Callable[..., Any], polymorphic_shapes: Any, polymorphic_constraints: Sequence[str]
) -> Callable[..., Any]:
    """Implement `hostcall.jax.to_tf`."""
    if not callable(jax_fn):
        raise TypeError(f"hostcall.jax.to_tf wants a function, and not {jax_fn!r}.")
    if isinstance(jax_fn, tf.types.experimental.PolymorphicFunction):
        raise TypeError(
            f"hostcall.jax.to_tf: {jax_fn!r} is a tf.function. Call it itself in TensorFlow, and "
            "in JAX what hostcall.jax.from_tf makes of it."
        )
    _names.require(_names.TO_TF)
    converted = _Converted(jax_fn, polymorphic_shapes, polymorphic_constraints)

    def run(*args: Any, **kwargs: Any) -> Any:
        return converted(*args, **kwargs)

    functools.update_wrapper(run, jax_fn, updated=())
    # Autograph must convert neither hostcall's code nor JAX's code below it.
    call = autograph.do_not_convert(run)
    # TensorFlow would trace the function in `__wrapped__`.
    del call.__dict__["__wrapped__"]
    return call


@dataclasses.dataclass(frozen=True)
class _Unsized:
    """The shape and dtype of an argument with unknown sizes."""

    shape: tuple[int | None, ...]
    dtype: Any


def _struct(shape: tuple[int | None, ...], dtype: Any) -> Any:
    try:
        return jax.ShapeDtypeStruct(shape, dtype)
    except ValueError:  # from JAX 0.11.2 on
        return _Unsized(shape, dtype)


class _Converted:
    """The implementation of a function that `to_tf` returns."""

    def __init__(
        self, function: Callable[..., Any], shapes: Any, constraints: Sequence[str]
    ) -> None:
        self._function = function
        self._jitted = function if _values.is_jitted(function) else jax.jit(function)
        self._shapes = shapes
        self._constraints = constraints
        self._programs: dict[Any, programs.Differentiable] = {}
        self._lock = _locks.new_lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _values.is_tracing() and tf.executing_eagerly():
            raise ValueError(
                f"{self._description}: what hostcall.jax.to_tf returns is called in a JAX "
                "transformation. In JAX, call the JAX function itself."
            )
        leaves, tree = jax.tree.flatten((args, kwargs))
        converted = [self._convert(leaf) for leaf in leaves]
        tensors = [tensor for tensor, _ in converted]
        if any(tensor.shape.rank is None for tensor in tensors):
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: not even the number of dimensions of "
                "an argument is known. Call tf.ensure_shape(argument, [None, ...]) on it before."
            )
        structs = [_struct(tuple(tensor.shape), dtype) for tensor, dtype in converted]
        key = tree, tuple((struct.shape, str(struct.dtype)) for struct in structs)
        program = self._programs.get(key)
        if program is None:
            program = self._export(tree, structs)
            with self._lock:
                program = self._programs.setdefault(key, program)
        results = program(tensors)
        return jax.tree.unflatten(program.out_tree, results)

    @property
    def _description(self) -> str:
        return source_location.of_function(self._function)

    def _convert(self, value: Any) -> tuple[Any, Any]:
        from jax.experimental.jax2tf import jax2tf  # a JAX version may lack it

        try:
            tensor, dtype = jax2tf._tfval_to_tensor_jax_dtype(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"hostcall.jax.to_tf of {self._description}: {value!r} is no tensor that JAX has."
            ) from error
        return tf.convert_to_tensor(tensor), dtype

    def _export(self, tree: Any, structs: list[Any]) -> programs.Differentiable:
        args, kwargs = jax.tree.unflatten(tree, structs)
        if any(struct.shape.count(None) for struct in structs) and self._shapes is None:
            shapes = ", ".join(str(struct.shape) for struct in structs)
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: not all sizes of the arguments are "
                f"known: {shapes}. JAX needs a name for each that is not. If the first one is the "
                "size of a batch, the same for all arguments, write\n\n"
                '    hostcall.jax.to_tf(function, polymorphic_shapes="batch, ...")\n\n'
                'or name them for each argument: polymorphic_shapes=["batch, ...", None].'
            )
        symbolic = jax.export.symbolic_args_specs(args, self._shapes, constraints=self._constraints)
        program = programs.export(self._jitted, symbolic, kwargs)
        return programs.Differentiable(self._jitted, program, self._description)
