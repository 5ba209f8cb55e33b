"""Pickled functions that SavedModels carry, and the permission to call them.

A pickle is a file named by the hash of its content. It lies in a folder of the SavedModel that
TensorFlow leaves to others, so that it is copied with the SavedModel.
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

from hostcall._functions.native_code import Native
from hostcall._saving.tokens import Pickled, Problem, SavedFunctionError
from hostcall._tf import autograph

# The bytecode in a pickle is for this version only: another version may crash on it.
PYTHON = ".".join(platform.python_version_tuple()[:2])

_INSTALL = (
    "hostcall: {what} needs cloudpickle, which is not installed here: "
    "pip install 'hostcall[pickle]', or cloudpickle alone."
)
_COPY = "it would be a copy in the process that loads the model. Pass its value as an argument"

# Objects that TensorFlow saves with a model: variables, layers, tables. Containers count as such
# objects, too, but it is their contents that are checked.
_STATEFUL = (tf.Variable, tf.__internal__.tracking.Trackable)
_CONTAINERS = (tf.Module, tf.types.experimental.GenericFunction, dict, list, tuple)


class UnpicklableError(ValueError):
    """An error for a function that cannot be pickled; the text has a line for each cause."""


def dumps(function: Callable[..., Any], shape_function: Any) -> bytes:
    """Return the pickle of a function and of its shape function or None, as bytes.

    Raises:
      UnpicklableError: when something in them cannot be pickled.
      ImportError: when cloudpickle is missing.
    """
    cloudpickle = _cloudpickle("hostcall.save_options(pickle=True)")
    function = autograph.without_autograph(function)
    problems: dict[str, None] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        """A pickler that replaces each object it cannot pickle, and so finds all of them."""

        def reducer_override(self, value: Any) -> Any:
            if (why := _why_not(value)) is None:
                try:
                    return self._reduced(value)
                except Exception as error:  # another library's class may raise anything
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
    """Return the two functions that `dumps` has pickled; to unpickle them can run any code.

    Args:
      data: the bytes of the pickle.
      label: the function's name in messages.

    Raises:
      SavedFunctionError: when the pickle cannot be read here.
      ImportError: when cloudpickle is missing.
    """
    cloudpickle = _cloudpickle(f"the pickle of {label}")
    try:
        function, shape_function = cloudpickle.loads(data)
    except Exception as error:  # unpickling runs any code
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
    """Return why an object must not be pickled, although it could be; or None."""
    if isinstance(value, _STATEFUL) and not isinstance(value, _CONTAINERS):
        return _COPY
    if isinstance(value, Native):
        return "it is native code, which lies in this process"
    return None


def _described(value: Any, function: Any) -> str:
    """Describe an object that a function refers to, for messages: its name there and its class."""
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
    """Replace an object that cannot be pickled, in a pickle that is thrown away."""


_FOLDER = ("assets.extra", "hostcall")

# By hash: the pickles that this process has made or read, so that a loaded model can be saved
# again, and the secrets that give leave to call them. Both are kept until the process ends, since
# a loaded graph may call its functions at any time.
_contents: dict[str, bytes] = {}
_leaves: dict[str, str] = {}


def pickled(function: Callable[..., Any], shape_function: Any, title: str) -> Pickled:
    """Pickle a function and its shape function for a SavedModel, and return the record.

    Raises:
      UnpicklableError, ImportError: when they cannot be pickled.
    """
    data = dumps(function, shape_function)
    sha256 = hashlib.sha256(data).hexdigest()
    _contents[sha256] = data
    return Pickled(sha256, PYTHON, title)


def write(sha256: str, directory: str) -> bool:
    """Write a pickle into a SavedModel; return False if this process does not have it."""
    if sha256 not in _contents:
        return False
    path = _path(sha256, directory)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(_contents[sha256])
    return True


def read(sha256: str, directory: str) -> Problem | None:
    """Read a pickle's file without unpickling it; return the problem with the file, or None."""
    path = _path(sha256, directory)
    copy = "# copy the SavedModel once more, with all that is in its directory"
    if os.path.lexists(path) and not os.path.isfile(path):  # reading a pipe may wait forever
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
    """Return the secret by which a graph of this process has leave to read a pickle."""
    return _leaves.setdefault(sha256, secrets.token_hex())


def problem_of(function: Pickled) -> Problem | None:
    """Return the problem that keeps a pickled function from being called, or None."""
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
            "the file holds it as a pickle, which can run anything when it is read, and reading it "
            "is not allowed",
            "with hostcall.load_options(allow_pickle=True):\n"
            "        model = tf.saved_model.load(path)",
        )
    return None


def missing(function: Pickled) -> Problem:
    """Return the problem with a pickled function of a graph that lies outside a SavedModel."""
    return Problem(
        "it is a pickle, which is not beside the graph: only a SavedModel carries it",
        f"hostcall.provide({json.dumps(function.title)}, function)",
    )


def find(function: Pickled) -> tuple[Any, Any]:
    """Return a pickled function without a problem (`problem_of`), and its shape function.

    Raises:
      SavedFunctionError, ImportError: when the pickle cannot be read here.
    """
    return loads(_contents[function.sha256], function.title)


def _path(sha256: str, directory: str) -> str:
    return os.path.join(directory, *_FOLDER, f"{sha256}.pickle")
