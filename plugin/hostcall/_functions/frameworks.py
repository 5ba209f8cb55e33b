"""The interface to TensorFlow and JAX, the frameworks that call callbacks; both are optional.

Each framework's side registers itself here when it is imported: TensorFlow's side of hostcall,
imported with TensorFlow, and `hostcall.jax`. No other module of this package knows a framework.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from hostcall_runtime import _trees

if TYPE_CHECKING:  # it imports specs, which import this module
    from hostcall._functions.user_function import UserFunction


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework whose programs call callbacks."""

    # Calls a callback with the framework's values, and returns its results.
    call: Callable[[UserFunction, tuple[Any, ...]], Any]
    # Returns the address of the handler of XLA's FFI in a capsule. It raises a TypeError for
    # another capsule, and a ValueError if the framework's XLA cannot call it.
    check_handler: Callable[[object], int]
    # Runs a program that calls a `Native` with a handler, for input arrays and the arrays of the
    # results. It raises a RuntimeError, or the framework's error for it.
    run_handler: Callable[[Any, Sequence[Any], Sequence[Any]], None]


@dataclasses.dataclass(frozen=True)
class Jax(Framework):
    """JAX's side of hostcall; `is_tracing` tells whether JAX traces a function on this thread."""

    is_tracing: Callable[[], bool]


@dataclasses.dataclass(frozen=True)
class TensorFlow(Framework):
    """TensorFlow's side of hostcall."""

    # Tells whether a value is a tensor, a variable or a composite tensor.
    holds: Callable[[object], bool]
    is_symbolic: Callable[[object], bool]  # tells whether a value is a tensor of a graph
    is_building: Callable[[], bool]  # tells whether a graph is being built on this thread
    as_tensors: Callable[[object], Any]  # converts the arrays of a structure to tensors
    # `tf.TensorShape`, `tf.as_dtype` and `tf.TensorSpec`.
    shape: Callable[[object], Any]
    dtype: Callable[[object], Any]
    spec: Callable[[object, object], Any]
    # Returns the descriptions and the options of the calls in living graphs whose function passes a
    # test.
    traced: Callable[[Callable[[object], bool]], list[tuple[str, object]]]


# The modules of hostcall that register themselves here.
_JAX, _TENSORFLOW = "hostcall.jax", "hostcall._with_tensorflow"
_entered: dict[str, Framework] = {}


def enter(side: Jax | TensorFlow) -> None:
    """Register a framework's side, so that it can call callbacks."""
    _entered[_JAX if isinstance(side, Jax) else _TENSORFLOW] = side


def tensorflow() -> TensorFlow | None:
    """Return TensorFlow's side of hostcall, or None if TensorFlow is not imported."""
    return cast("TensorFlow | None", _entered.get(_TENSORFLOW))


def _jax() -> types.ModuleType | None:
    """Return JAX, or None if it is not imported, or not completely."""
    jax = sys.modules.get("jax")
    return jax if hasattr(jax, "Array") else None


def call_callback(user: UserFunction, args: tuple[Any, ...], given: Iterable[Any]) -> object:
    """Call a callback from the framework of its arguments, which must not be mixed."""
    return _loaded(_JAX if is_for_jax(given) else _TENSORFLOW).call(user, args)


def handler_framework() -> Framework:
    """Return the framework whose programs call handlers of XLA's FFI for NumPy arrays."""
    return _loaded(_JAX if _is_jax_alone() else _TENSORFLOW)


def is_for_jax(args: Iterable[Any]) -> bool:
    """Return whether a callback is called from JAX; raise a TypeError for mixed arguments."""
    jax = _jax()
    if jax is None:
        return False
    leaves = jax.tree.leaves(list(args), is_leaf=is_tensorflows)
    if not any(map(is_tensorflows, leaves)):
        is_array = any(isinstance(leaf, jax.Array) for leaf in leaves)
        return is_array or _is_jax_alone() or _is_traced_by_jax()
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            "hostcall.callback: some arguments are TensorFlow's tensors and others are values of a "
            "JAX program that is being traced. Convert the tensors first: jnp.asarray(t.numpy())."
        )
    return False


def is_pytree(value: object) -> bool:
    """Return whether JAX takes a value as a structure; layers and sparse arrays are none."""
    jax = _jax()
    if jax is None:
        return False
    if isinstance(value, jax.tree_util.Partial):  # a function, unless it holds specs
        return any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(value))
    return not jax.tree_util.all_leaves([value])


def holds_arrays(value: object) -> bool:
    """Return whether a value is a tensor or an array, or a structure that holds one."""
    leaves = _trees.leaves(value)
    if (jax := _jax()) is not None:
        leaves += jax.tree.leaves(leaves)  # JAX knows classes that are registered with it
    return any(
        is_tensorflows(leaf)
        # NumPy's scalar types have a shape and a dtype, too.
        or (hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type))
        for leaf in leaves
    )


def is_tensorflows(value: object) -> bool:
    """Return whether a value is a tensor, a variable or a composite tensor of TensorFlow."""
    side = tensorflow()
    return side is not None and side.holds(value)


def belongs_to_a_program(value: object) -> bool:
    """Return whether a value is a tensor while a graph is being built, or a JAX array."""
    side = tensorflow()
    if side is not None and side.holds(value):
        return side.is_building()
    jax = _jax()
    return jax is not None and isinstance(value, jax.Array)


def like(arguments: Iterable[object], results: object) -> object:
    """Convert NumPy arrays to tensors if one of the arguments is a tensor."""
    side = tensorflow()
    if side is None or not any(map(side.holds, arguments)):
        return results
    return side.as_tensors(results)


def _is_jax_alone() -> bool:
    """Return whether JAX is imported and TensorFlow is not, so that only JAX can be meant."""
    return _jax() is not None and "tensorflow" not in sys.modules


def _is_traced_by_jax() -> bool:
    """Return whether a JAX program is being built; for calls without arrays that would tell."""
    side = tensorflow()
    if side is not None and side.is_building():
        return False
    try:
        return cast("Jax", _loaded(_JAX)).is_tracing()
    except ImportError:  # hostcall.jax does not support this version of JAX
        return False


def _loaded(module: str) -> Framework:
    if module not in _entered:
        importlib.import_module(module)
    return _entered[module]
