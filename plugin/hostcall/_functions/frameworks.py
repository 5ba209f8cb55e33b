"""The interface to TensorFlow and JAX, the frameworks that call callbacks; both are optional.

Each framework's side registers itself here when it is imported: TensorFlow's side of hostcall,
imported with TensorFlow, and `hostcall.jax`. No other module of this package knows a framework.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from hostcall_runtime import _trees

if TYPE_CHECKING:  # it imports specs, which import this module
    from hostcall._functions.user_function import UserFunction


class Native(Protocol):
    """The interface of native code that is a handler of XLA's FFI."""

    @property
    def code(self) -> Any:
        """The handler, a `FfiHandler`."""


class Framework(Protocol):
    """A framework whose programs call callbacks."""

    def call(self, user: UserFunction, args: tuple[Any, ...]) -> Any:
        """Call a callback with the framework's values, and return its results."""

    def check_handler(self, capsule: object) -> int:
        """Return the address of a handler of XLA's FFI.

        Raises:
          TypeError: when the capsule holds something else.
          ValueError: when the framework's XLA cannot call it.
        """

    def run_handler(self, native: Native, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Run a program of the framework that calls a handler, which writes the results.

        Args:
          native: the `Native` that holds the handler.
          inputs: the input arrays.
          results: the arrays to write.

        Raises:
          RuntimeError, or the framework's error for it: when the handler fails.
        """


class Jax(Framework, Protocol):
    """The interface of `hostcall.jax`."""

    def is_tracing(self) -> bool:
        """Return whether JAX is tracing a function on this thread."""


class TensorFlow(Framework, Protocol):
    """The interface of TensorFlow's side of hostcall."""

    def holds(self, value: object) -> bool:
        """Return whether a value is a tensor, a variable or a composite tensor."""

    def is_symbolic(self, value: object) -> bool:
        """Return whether a value is a tensor of a graph."""

    def is_building(self) -> bool:
        """Return whether a graph is being built on this thread."""

    def as_tensors(self, structure: object) -> Any:
        """Convert the arrays of a structure to tensors."""

    def shape(self, sizes: object) -> Any:
        """Return a `tf.TensorShape`."""

    def dtype(self, dtype: object) -> Any:
        """Return a `tf.DType`."""

    def spec(self, sizes: object, dtype: object) -> Any:
        """Return a `tf.TensorSpec`."""


# The modules of hostcall that register themselves here.
_JAX, _TENSORFLOW = "hostcall.jax", "hostcall._with_tensorflow"
_entered: dict[str, Framework] = {}


def enter_jax(side: Jax) -> None:
    """Register JAX's side, so that JAX can call callbacks."""
    _entered[_JAX] = side


def enter_tensorflow(side: TensorFlow) -> None:
    """Register TensorFlow's side, so that TensorFlow can call callbacks."""
    _entered[_TENSORFLOW] = side


def tensorflow() -> TensorFlow | None:
    """Return TensorFlow's side of hostcall, or None if TensorFlow is not imported."""
    return cast("TensorFlow | None", _entered.get(_TENSORFLOW))


def call(user: UserFunction, args: tuple[Any, ...], given: Iterable[Any]) -> Any:
    """Call a callback from the framework of its arguments, and return the results.

    Args:
      user: the function.
      args: its arguments.
      given: the arguments as the user has given them.

    Raises:
      TypeError: when some are TensorFlow's, and others values of a JAX program.
      ImportError: when no framework is installed, or hostcall does not work with it.
    """
    return _loaded(_JAX if is_for_jax(given) else _TENSORFLOW).call(user, args)


def of_handlers() -> Framework:
    """Return the framework whose programs call handlers of XLA's FFI for NumPy arrays."""
    return _loaded(_JAX if _is_alone(sys.modules.get("jax")) else _TENSORFLOW)


def is_for_jax(args: Iterable[Any]) -> bool:
    """Return whether a callback with these arguments is called from JAX.

    Raises:
      TypeError: when some are TensorFlow's, and others values of a JAX program.
    """
    jax = sys.modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    assert jax is not None
    leaves = jax.tree.leaves(list(args), is_leaf=is_tensorflows)
    if not any(map(is_tensorflows, leaves)):
        is_array = any(isinstance(leaf, jax.Array) for leaf in leaves)
        return is_array or _is_alone(jax) or _is_traced_by_jax()
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            "hostcall.callback: some arguments are TensorFlow's tensors and others are values of a "
            "JAX program that is being traced. Convert the tensors first: jnp.asarray(t.numpy())."
        )
    return False


def is_pytree(value: object) -> bool:
    """Return whether JAX takes a value as a structure.

    Attributes do not tell: sparse arrays have a shape and a dtype, and layers of models are
    callable.
    """
    jax = sys.modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    assert jax is not None
    if isinstance(value, jax.tree_util.Partial):  # a function, unless it holds specs
        return any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(value))
    return not jax.tree_util.all_leaves([value])


def holds_arrays(value: object) -> bool:
    """Return whether a value is a tensor or an array, or a structure that holds one."""
    leaves = _trees.leaves(value)
    jax = sys.modules.get("jax")
    if hasattr(jax, "Array"):
        assert jax is not None
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
    jax = sys.modules.get("jax")
    return hasattr(jax, "Array") and isinstance(value, jax.Array)  # type: ignore[union-attr]


def like(arguments: Iterable[object], results: object) -> Any:
    """Convert NumPy arrays to tensors if one of the arguments is a tensor."""
    side = tensorflow()
    if side is None or not any(map(side.holds, arguments)):
        return results
    return side.as_tensors(results)


def _is_alone(jax: object) -> bool:
    """Return whether JAX is imported and TensorFlow is not, so that only JAX can be meant."""
    return hasattr(jax, "Array") and "tensorflow" not in sys.modules


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
