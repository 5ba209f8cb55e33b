"""Functions as bytes, and back, by cloudpickle."""

from __future__ import annotations

import importlib
import inspect
import io
import platform
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._functions.native.native_code import NativeCode
from hostcall._saving.errors import SavedFunctionError
from hostcall._tf import autograph

# The bytecode in a pickle is for this version alone: another one may crash on it.
PYTHON = ".".join(platform.python_version_tuple()[:2])

_INSTALL = (
    "hostcall: {what} needs cloudpickle, which is not installed here: "
    "pip install 'hostcall[pickle]', or cloudpickle alone."
)
_COPY = "it would be a copy in the process that loads the model. Pass its value as an argument"

# What TensorFlow saves with a model: variables, layers, tables. Of what else it calls so, the
# content is looked at.
_STATEFUL = (tf.Variable, tf.__internal__.tracking.Trackable)
_CONTAINERS = (tf.Module, tf.types.experimental.GenericFunction, dict, list, tuple)


class UnpicklableError(ValueError):
    """A function cannot be pickled; the text says what in it cannot be, a line each."""


def dumps(function: Callable[..., Any], shape_function: Any) -> bytes:
    """A function and what computes the shapes of its results, or None, as bytes.

    Raises:
      UnpicklableError: when something in them cannot be pickled.
      ImportError: when cloudpickle is missing.
    """
    cloudpickle = _cloudpickle("hostcall.save_options(pickle=True)")
    function = autograph.without_autograph(function)
    problems: dict[str, None] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        """Goes on where something cannot be pickled, to find all that cannot."""

        def reducer_override(self, value: Any) -> Any:
            if (why := _why_not(value)) is None:
                try:
                    return self._reduced(value)
                except Exception as error:  # whatever the class of somebody else's raises
                    why = str(error)
            problems[f"{_described(value, function)}: {why}"] = None
            return _nothing, ()

        def _reduced(self, value: Any) -> Any:
            reduced = super().reducer_override(value)
            if reduced is not NotImplemented or isinstance(value, type | types.FunctionType):
                return reduced
            reduce = self.dispatch_table.get(type(value))
            return value.__reduce_ex__(self.proto) if reduce is None else reduce(value)

    stream = io.BytesIO()
    pickler = Pickler(stream)
    pickler.proto = cloudpickle.DEFAULT_PROTOCOL
    try:
        pickler.dump((function, shape_function))
    except Exception as error:
        problems[f"{type(error).__name__}: {error}"] = None
    if problems:
        raise UnpicklableError("\n".join(problems))
    return stream.getvalue()


def loads(data: bytes, label: str) -> tuple[Callable[..., Any], Any]:
    """What `dumps` has made bytes of. They run whatever their maker wants.

    Args:
      data: the bytes.
      label: what messages call the function.

    Raises:
      SavedFunctionError: when they cannot be read here.
      ImportError: when cloudpickle is missing.
    """
    cloudpickle = _cloudpickle(f"the pickle of {label}")
    try:
        function, shape_function = cloudpickle.loads(data)
    except Exception as error:  # it may raise anything
        raise SavedFunctionError(
            f"hostcall: the pickle of {label}, which a loaded graph calls, cannot be read here: "
            f"{type(error).__name__}: {error}. What it refers to has to be here as it was where "
            "the model was saved."
        ) from error
    if not callable(function):
        raise SavedFunctionError(f"hostcall: the pickle of {label} holds no function.")
    return function, shape_function


def _cloudpickle(what: str) -> Any:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError as error:
        raise ImportError(_INSTALL.format(what=what)) from error


def _why_not(value: Any) -> str | None:
    """Why something must not be pickled that could be."""
    if isinstance(value, _STATEFUL) and not isinstance(value, _CONTAINERS):
        return _COPY
    if isinstance(value, NativeCode):
        return "it is native code, which lies in this process"
    return None


def _described(value: Any, function: Any) -> str:
    """What messages call something that a function refers to: its class, and its name there."""
    kind = type(value)
    shown = f"a {kind.__name__} ({kind.__module__})"
    name = next((name for name, one in _referred_to_by(function) if one is value), None)
    return shown if name is None else f"{name}, {shown}"


def _referred_to_by(function: Any) -> Iterator[tuple[str, Any]]:
    while hasattr(function, "func"):  # of functools.partial
        yield from ((str(key), value) for key, value in function.keywords.items())
        function = function.func
    for name, value in getattr(getattr(function, "__self__", None), "__dict__", {}).items():
        yield f"self.{name}", value
    function = getattr(function, "__func__", function)
    if isinstance(function, types.FunctionType):
        found = inspect.getclosurevars(function)
        yield from {**found.globals, **found.nonlocals}.items()


def _nothing() -> None:
    """What stands in a pickle for what cannot be pickled; such a pickle is thrown away."""
