"""What the lowering rules of other primitives put into a program for `to_tf`.

JAX and its libraries lower some primitives to custom calls: linear algebra to jaxlib's handlers,
and functions such as equinox's `noinline` to Python callbacks, by `mlir.emit_python_callback`.
`jax.export` refuses the latter. So the lowered program is changed before it is exported.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from hostcall._functions import source_location
from hostcall._tf import relayed_handlers
from hostcall_mlir import PassError
from hostcall_mlir.exporting import custom_calls, portable

# The target by which jax.experimental.buffer_callback calls Python.
_BUFFERS = "xla_buffer_python_cpu_callback"


class Exportable:
    """A jitted function, whose lowered program has host calls in the place of such callbacks.

    `handlers` are then the targets of the program's custom calls whose handlers are JAX's.
    `register` registers a Python function of arrays by its name, and returns the callback id. If
    it is None, JAX refuses the callbacks.
    """

    def __init__(
        self, jitted: Any, register: Callable[[Callable[..., Any], str], int] | None
    ) -> None:
        self._jitted = jitted
        self._register = register
        self.handlers: tuple[str, ...] = ()

    # What JAX asks of a function that it exports.

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """Call the function."""
        return self._jitted(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> object:
        """Lower the function, unchanged."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> types.SimpleNamespace:
        """Trace the function; what is lowered of the trace is changed."""
        traced = self._jitted.trace(*args, **kwargs)

        def lower(**given: Any) -> object:
            lowered = traced.lower(**given)
            self._change(lowered._lowering)
            return lowered

        return types.SimpleNamespace(lower=lower, jaxpr=traced.jaxpr, fun_name=traced.fun_name)

    def _change(self, lowering: Any) -> None:
        module, functions = lowering.stablehlo(), lowering.compile_args["host_callbacks"]
        targets = custom_calls.targets_in(module)
        if _BUFFERS in targets:
            raise NotImplementedError(
                "hostcall.jax.to_tf: jax.experimental.buffer_callback writes to the memory of "
                "JAX's XLA, and TensorFlow's has its own. Return the arrays, from a function that "
                "hostcall.jax.call or jax.pure_callback calls."
            )
        if functions and self._register is not None:
            self._take(module, functions, self._register)
            kept = [one for one in lowering.compile_args["keepalive"] if one not in functions]
            # JAX exports no program with callbacks; this one has none any more.
            lowering.compile_args |= {"host_callbacks": [], "keepalive": kept}
        self.handlers = relayed_handlers.provide(targets)

    def _take(
        self,
        module: Any,
        functions: Sequence[Callable[..., Any]],
        register: Callable[[Callable[..., Any], str], int],
    ) -> None:
        """Make the calls of these functions host calls."""

        def registered(index: int, has_token: bool) -> int:
            function = functions[index]
            name = source_location.of_function(_user_function(function))
            return register(_without_token(function) if has_token else function, name)

        try:
            portable.take_callbacks_of_jax(module, registered)
        except PassError as error:
            raise NotImplementedError(f"hostcall.jax.to_tf: {error}") from error


def _without_token(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays alone for one that takes and returns a token before them."""

    @functools.wraps(function)
    def call(*arrays: Any) -> object:
        return function(None, *arrays)[1:]

    return call


def _user_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that JAX has wrapped, or the function itself if it is not found."""
    for name in ("callback_without_token", "callback"):
        if inspect.isfunction(function):
            cells = inspect.getclosurevars(function).nonlocals
            function = cells.get(name, function)
    return function
