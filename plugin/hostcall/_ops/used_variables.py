"""The variables of TensorFlow that a Python function refers to, as far as its code tells."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


def referred_to(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables by the names in the function's code, such as `v` or `model.kernel`."""
    found: dict[str, Any] = {}
    for name, value in _referred(function):
        for part, variable in _variables_of(value):
            if all(variable is not other for other in found.values()):
                found[name + part] = variable
    return found


def _variables_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a variable, a module or a Keras model, with what a name lacks."""
    if isinstance(value, tf.Variable):
        yield "", value
        return
    held = [] if isinstance(value, type) else getattr(value, "variables", None)
    for one in held if isinstance(held, list | tuple) else ():
        # Keras's variables wrap those of TensorFlow.
        variable = one if isinstance(one, tf.Variable) else getattr(one, "value", None)
        if isinstance(variable, tf.Variable):
            yield f".{one.name}", variable


def _referred(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function refers to, with their names."""
    while isinstance(function, functools.partial):
        for value in (*function.args, *function.keywords.values()):
            yield "an argument of functools.partial", value
        function = function.func
    owner = getattr(function, "__self__", None)
    code = inspect.unwrap(getattr(function, "__func__", function))
    if owner is not None and not isinstance(owner, types.ModuleType):
        yield "self", owner
        yield from (
            (f"self.{name}", value) for name, value in getattr(owner, "__dict__", {}).items()
        )
    if isinstance(code, types.FunctionType):
        variables = inspect.getclosurevars(code)
        yield from {**variables.globals, **variables.nonlocals}.items()
