"""Whether a call is for TensorFlow or for JAX, which need not be there."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from hostcall._callbacks.declaration import Declaration
from hostcall._tf import tensor_structures


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a `hostcall.Callback` is made of.

    Attributes:
      function: the user's.
      declaration: what the user has declared of it.
      kind: "numpy" or "eager".
      stateful: whether each call has a side effect.
      name: what the callback is registered as, or None.
      grad: the gradient that the user has given it, or None.
    """

    function: Callable[..., Any]
    declaration: Declaration
    kind: str
    stateful: bool
    name: str | None
    grad: Callable[..., Any] | None


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework other than TensorFlow whose programs call callbacks.

    Attributes:
      is_tracing: whether it traces a function on this thread now.
      call: the results of a callback for its arrays.
    """

    is_tracing: Callable[[], bool]
    call: Callable[[Parts, tuple[Any, ...]], Any]


_JAX = "hostcall.jax"

# By the module of hostcall that adds the framework, and enters it here when it is imported.
_frameworks: dict[str, Framework] = {}


def register(module: str, framework: Framework) -> None:
    """Enters the framework that a module of hostcall adds."""
    _frameworks[module] = framework


def is_for_jax(args: Iterable[Any]) -> bool:
    """Whether a callback that is called with `args` is called from JAX.

    Raises:
      TypeError: when some are TensorFlow's, and others values of a JAX program.
    """
    jax = sys.modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    assert jax is not None
    leaves = jax.tree.leaves(list(args), is_leaf=_is_tensorflows)
    if not any(map(_is_tensorflows, leaves)):
        return any(isinstance(leaf, jax.Array) for leaf in leaves) or _is_traced_by_jax()
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            "hostcall.callback: some arguments are TensorFlow's tensors and others are values of a "
            "JAX program that is being traced. Convert the tensors first: jnp.asarray(t.numpy())."
        )
    return False


def holds_arrays(value: Any) -> bool:
    """Whether a value is a tensor or an array, or a structure with one in it."""
    if isinstance(value, type):  # NumPy's types of scalars have a shape and a dtype, too
        return False
    if _is_tensorflows(value) or (hasattr(value, "shape") and hasattr(value, "dtype")):
        return True
    if isinstance(value, dict):
        return any(map(holds_arrays, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_arrays, value))
    jax = sys.modules.get("jax")
    if value is None or isinstance(value, str | int | float) or not hasattr(jax, "Array"):
        return False
    assert jax is not None
    leaves = jax.tree.leaves(value)  # of classes that are registered there
    return not (len(leaves) == 1 and leaves[0] is value) and any(map(holds_arrays, leaves))


def call_from_jax(parts: Parts, args: tuple[Any, ...]) -> Any:
    """The results of a callback that is called from JAX.

    Raises:
      ImportError: hostcall.jax does not work with the JAX that is there.
    """
    return _loaded(_JAX).call(parts, args)


def _is_tensorflows(value: Any) -> bool:
    return isinstance(value, tf.Tensor | tf.Variable | tensor_structures.CompositeTensor)


def _is_traced_by_jax() -> bool:
    """Without arguments that would tell: whether it is JAX's program that is being built."""
    if not tf.executing_eagerly():
        return False
    try:
        return _loaded(_JAX).is_tracing()
    except ImportError:  # a JAX that hostcall.jax does not work with
        return False


def _loaded(module: str) -> Framework:
    if module not in _frameworks:
        importlib.import_module(module)
    return _frameworks[module]
