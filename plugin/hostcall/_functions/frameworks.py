"""TensorFlow and JAX as far as Python functions are called from them; neither need be there.

Each of the two enters itself here when it is imported: TensorFlow's side of hostcall, which is
imported when TensorFlow is, and `hostcall.jax`. Nothing else in this package knows either.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast

from hostcall._functions.declaration import Declaration


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


class Native(Protocol):
    """What is asked of native code that is a handler of XLA's FFI."""

    @property
    def code(self) -> Any:
        """The handler, a `FfiHandler`."""


class Framework(Protocol):
    """A framework whose programs call callbacks."""

    def call(self, parts: Parts, args: tuple[Any, ...]) -> Any:
        """The results of a callback for arguments of the framework's."""

    def check_handler(self, capsule: object) -> int:
        """The address of a handler of XLA's FFI.

        Raises:
          TypeError: when the capsule holds something else.
          ValueError: when the framework's XLA cannot call it.
        """

    def run_handler(self, native: Native, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Runs a program of the framework's that calls a handler, which writes the results.

        Args:
          native: the `Native` of it.
          inputs: arrays.
          results: arrays.

        Raises:
          RuntimeError, or what stands for the handler's error: when it fails.
        """


class Jax(Framework, Protocol):
    """What is asked of `hostcall.jax`."""

    def is_tracing(self) -> bool:
        """Whether JAX traces a function on this thread now."""


class TensorFlow(Framework, Protocol):
    """What is asked of TensorFlow's side of hostcall."""

    def holds(self, value: object) -> bool:
        """Whether a value is a tensor, a variable or a composite tensor."""

    def is_symbolic(self, value: object) -> bool:
        """Whether a value is a tensor of a graph."""

    def is_building(self) -> bool:
        """Whether a graph is built on this thread now."""

    def as_tensors(self, structure: object) -> Any:
        """The arrays of a structure as tensors."""

    def shape(self, sizes: object) -> Any:
        """A `tf.TensorShape`."""

    def dtype(self, dtype: object) -> Any:
        """A `tf.DType`."""

    def spec(self, sizes: object, dtype: object) -> Any:
        """A `tf.TensorSpec`."""


# The modules of hostcall that enter themselves here.
_JAX, _TENSORFLOW = "hostcall.jax", "hostcall._with_tensorflow"
_entered: dict[str, Framework] = {}


def enter_jax(side: Jax) -> None:
    """From now on callbacks can be called from JAX."""
    _entered[_JAX] = side


def enter_tensorflow(side: TensorFlow) -> None:
    """From now on callbacks can be called from TensorFlow."""
    _entered[_TENSORFLOW] = side


def tensorflow() -> TensorFlow | None:
    """TensorFlow's side of hostcall, where TensorFlow is imported."""
    return cast("TensorFlow | None", _entered.get(_TENSORFLOW))


def call(parts: Parts, args: tuple[Any, ...], given: Iterable[Any]) -> Any:
    """The results of a callback, for the framework that it is called from.

    Args:
      parts: those of the callback.
      args: its arguments.
      given: the same, as the user has given them.

    Raises:
      TypeError: when some are TensorFlow's, and others values of a JAX program.
      ImportError: hostcall does not work with the framework that is there, or there is none.
    """
    return _loaded(_JAX if is_for_jax(given) else _TENSORFLOW).call(parts, args)


def of_handlers() -> Framework:
    """The framework whose programs call handlers of XLA's FFI for NumPy's arrays."""
    return _loaded(_JAX if _is_alone(sys.modules.get("jax")) else _TENSORFLOW)


def is_for_jax(args: Iterable[Any]) -> bool:
    """Whether a callback that is called with `args` is called from JAX.

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
    """Whether a value is a structure to JAX, which may look like an array or a function otherwise.

    Sparse arrays have a shape and a dtype, and layers of models can be called.
    """
    jax = sys.modules.get("jax")
    if not hasattr(jax, "Array"):
        return False
    assert jax is not None
    if isinstance(value, jax.tree_util.Partial):  # a function, unless it holds specs
        return any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(value))
    return not jax.tree_util.all_leaves([value])


def holds_arrays(value: object) -> bool:
    """Whether a value is a tensor or an array, or a structure with one in it."""
    if isinstance(value, type):  # NumPy's types of scalars have a shape and a dtype, too
        return False
    if is_tensorflows(value) or (hasattr(value, "shape") and hasattr(value, "dtype")):
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


def is_tensorflows(value: object) -> bool:
    """Whether a value is a tensor, a variable or a composite tensor of TensorFlow's."""
    side = tensorflow()
    return side is not None and side.holds(value)


def belongs_to_a_program(value: object) -> bool:
    """Whether a value is a tensor in a graph that is built, or one of JAX's arrays."""
    side = tensorflow()
    if side is not None and side.holds(value):
        return side.is_building()
    jax = sys.modules.get("jax")
    return hasattr(jax, "Array") and isinstance(value, jax.Array)  # type: ignore[union-attr]


def like(arguments: Iterable[object], results: object) -> Any:
    """Arrays of NumPy's as tensors, if there is a tensor among the arguments."""
    side = tensorflow()
    if side is None or not any(map(side.holds, arguments)):
        return results
    return side.as_tensors(results)


def _is_alone(jax: object) -> bool:
    """Whether JAX is there and TensorFlow is not, so that nobody can mean that."""
    return hasattr(jax, "Array") and "tensorflow" not in sys.modules


def _is_traced_by_jax() -> bool:
    """Without arguments that would tell: whether it is JAX's program that is being built."""
    side = tensorflow()
    if side is not None and side.is_building():
        return False
    try:
        return cast("Jax", _loaded(_JAX)).is_tracing()
    except ImportError:  # a JAX that hostcall.jax does not work with
        return False


def _loaded(module: str) -> Framework:
    if module not in _entered:
        importlib.import_module(module)
    return _entered[module]
