"""Pickled functions that SavedModels carry, and the permission to call them.

A file has the name of its content's hash, in a folder of the SavedModel that TensorFlow leaves to
others, so that it goes where the SavedModel goes.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import json
import os
import platform
import secrets
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._functions.native_code import NativeCode
from hostcall._saving.tokens import Pickled, Problem, SavedFunctionError
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


_FOLDER = ("assets.extra", "hostcall")

# By hash, what was written or read by this process, so that a model that was loaded can be saved
# again; and the secrets that stand for leave to call what they are of. As long as the process,
# since a graph that was loaded may call them any time.
_contents: dict[str, bytes] = {}
_leaves: dict[str, str] = {}


def pickled(function: Callable[..., Any], shape_function: Any, title: str) -> Pickled:
    """The record of a function that is to be carried, and the shape function of its results.

    Raises:
      pickling.UnpicklableError, ImportError: when it cannot be pickled.
    """
    data = dumps(function, shape_function)
    sha256 = hashlib.sha256(data).hexdigest()
    _contents[sha256] = data
    return Pickled(sha256, PYTHON, title)


def write(sha256: str, directory: str) -> bool:
    """Writes a pickle into a SavedModel; False where this process does not have it."""
    if sha256 not in _contents:
        return False
    path = _path(sha256, directory)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(_contents[sha256])
    return True


def read(sha256: str, directory: str) -> Problem | None:
    """Reads the file of a pickle, as mere bytes; or says what is wrong with it."""
    path = _path(sha256, directory)
    copy = "# copy the SavedModel once more, with all that is in its directory"
    if os.path.lexists(path) and not os.path.isfile(path):  # a pipe, say, that nobody writes to
        return Problem(f"{path} is no file", copy)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except (tf.errors.OpError, OSError):
        return Problem(f"its pickle is missing, {path}", copy)
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        return Problem(f"its pickle was altered: the SHA-256 of {path} is {found}", copy)
    _contents[sha256] = data
    return None


def leave_for(sha256: str) -> str:
    """What in a graph of this process says that a pickle may be read for it."""
    return _leaves.setdefault(sha256, secrets.token_hex())


def problem_of(function: Pickled) -> Problem | None:
    """What keeps a pickled function from being called, or None."""
    if function.python != PYTHON:
        return Problem(
            f"the file holds it as a pickle of Python {function.python}, which {PYTHON} "
            "cannot read",
            "# save the model again, or load it, with the same version of Python",
        )
    if function.sha256 not in _contents:
        return missing(function)
    if not function.leave or function.leave != _leaves.get(function.sha256):
        return Problem(
            "the file holds it as a pickle, which can run anything when it is read, and nobody "
            "has allowed that",
            "with hostcall.load_options(allow_pickle=True):\n"
            "        model = tf.saved_model.load(path)",
        )
    return None


def missing(function: Pickled) -> Problem:
    """What keeps the function of a graph of its own from being called."""
    return Problem(
        "it is a pickle, which is not beside the graph: only a SavedModel carries it",
        f"hostcall.provide({json.dumps(function.title)}, function)",
    )


def find(function: Pickled) -> tuple[Any, Any]:
    """A pickled function that has no `problem_of`, and the shape function of its results.

    Raises:
      SavedFunctionError, ImportError: when it cannot be read here.
    """
    return loads(_contents[function.sha256], function.title)


def _path(sha256: str, directory: str) -> str:
    return os.path.join(directory, *_FOLDER, f"{sha256}.pickle")
