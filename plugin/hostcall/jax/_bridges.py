"""The bridges between JAX and TensorFlow, which import TensorFlow when they are called."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Sequence
from typing import Any

from hostcall.jax import _names

_Convert = Callable[..., Callable[..., Any]]


def to_tf(
    jax_fn: Callable[..., Any],
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
) -> Callable[..., Any]:
    """Convert a JAX function to a TensorFlow one, eager, in graphs or under `jit_compile=True`.

    It works as `jax2tf.convert` does, and also with callbacks: `hostcall.jax.call`,
    `jax.pure_callback`, `io_callback`, `jax.debug.callback` and `jax.debug.print`; with linear
    algebra, with handlers of `jax.ffi`, and with callbacks that other libraries' primitives make.

    Args:
      jax_fn: a function of pytrees of arrays.
      polymorphic_shapes: names for the sizes that tracing does not know, as in `jax2tf.convert`:
        for each argument None or a string such as "batch, ..."; one of them for all arguments. It
        is needed where a `tf.function` is traced with unknown sizes.
      polymorphic_constraints: constraints on those names, such as "batch >= 2".

    Returns:
      A function of tensors (or arrays, in pytrees), which returns tensors in the structure that
      `jax_fn` returns. TensorFlow differentiates it as JAX differentiates `jax_fn`. A function with
      side effects has one derivative; any other one has those that JAX has.

      The function is traced for each new structure, dtype and shape of its arguments, and holds the
      programs of all. 64-bit arguments become 32-bit ones unless `jax_enable_x64` is set.

    Raises:
      ImportError: when TensorFlow is not installed.
      TypeError: when `jax_fn` is not callable, or a tf.function; when the returned function gets an
        argument that is not a tensor JAX has.
      ValueError: when a size of an argument is not known and has no name.
      NotImplementedError: when TensorFlow's XLA cannot call a handler that the program calls.

    Examples:
      >>> def in_jax(x):
      ...     return 2 * hostcall.jax.call(np.sort, x, x)
      >>> sort = tf.function(hostcall.jax.to_tf(in_jax), jit_compile=True)
      >>> sort(tf.constant([3.0, 1.0, 2.0])).numpy()
      array([2., 4., 6.], dtype=float32)
    """
    convert: _Convert = _bridge("to_tf").convert
    return convert(jax_fn, polymorphic_shapes, polymorphic_constraints)


def from_tf(
    tf_fn: Callable[..., Any],
    *,
    result: object = None,
    ordered: bool = False,
    pure: bool = False,
    vmap_method: str | None = None,
) -> Callable[..., Any]:
    """Convert a TensorFlow function to a JAX function.

    A JAX program calls it as it calls a Python function, by `hostcall.jax.call`, in `jax.jit`,
    loops, branches and `shard_map`. TensorFlow runs it, and keeps the order of its script ops,
    variables and side effects. With `jit_compile=True` of its own it is compiled.

    Args:
      tf_fn: a `tf.function`, or a function to make one of. It takes and returns pytrees of tensors.
      result: the results, as in `hostcall.jax.call`, where TensorFlow does not know their shapes.
      ordered: as in `hostcall.jax.call`: whether calls run in the order of the JAX program.
      pure: likewise: whether it has no side effect.
      vmap_method: likewise. All but the sequential ones call it with one more dimension.

    Returns:
      A function of pytrees of JAX arrays, which JAX can differentiate, any number of times. A
      `tf.GradientTape` computes the gradient. It calls `tf_fn` once more, side effects included, as
      `jax2tf.call_tf` does.

    Raises:
      ImportError: when TensorFlow is not installed.
      TypeError: when `tf_fn` is not callable, or a function of JAX's; as `hostcall.jax.call`.
      ValueError: as `hostcall.jax.call`; and when a result's shape is not known.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def in_tensorflow(x):
      ...     return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> sort = hostcall.jax.from_tf(in_tensorflow)
      >>> jax.jit(sort)(jnp.array([3.0, 1.0, 2.0]))
      Array([1., 2., 3.], dtype=float32)
    """
    convert: _Convert = _bridge("from_tf").convert
    return convert(tf_fn, result=result, ordered=ordered, pure=pure, vmap_method=vmap_method)


def _bridge(name: str) -> types.ModuleType:
    """Import the module of a bridge, which needs a TensorFlow that hostcall works with."""
    try:
        importlib.import_module("hostcall._with_tensorflow")
    except ImportError as error:
        raise ImportError(
            f"hostcall.jax.{name} needs TensorFlow, which JAX programs do not otherwise: {error}",
            name=error.name,
        ) from error
    _names.check_bridges()
    return importlib.import_module(f"hostcall._bridges.{name}")
