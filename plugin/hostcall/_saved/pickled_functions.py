"""Pickled functions that SavedModels carry, and the options to carry and to call them.

A pickle is a file named by the hash of its content. It lies in a folder of the SavedModel that
TensorFlow leaves to others, so that it is copied with the SavedModel.
"""

from __future__ import annotations

import contextvars
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
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from hostcall._functions.native_code import Native
from hostcall._ops import settings
from hostcall._saved.tokens import Pickled, Problem, SavedFunctionError
from hostcall._tf import autograph

# The bytecode in a pickle is for this version only: another version may crash on it.
PYTHON = ".".join(platform.python_version_tuple()[:2])

_COPY = "it would be a copy in the process that loads the model. Pass its value as an argument"

# Objects that TensorFlow saves with a model: variables, layers, tables. Containers count as such
# objects, too, but it is their contents that are checked.
_STATEFUL = (tf.Variable, tf.__internal__.tracking.Trackable)
_CONTAINERS = (tf.Module, tf.types.experimental.GenericFunction, dict, list, tuple)

# Whether models that are saved now carry functions without a name, and whether models that are
# loaded now may call them.
pickles_functions = contextvars.ContextVar("hostcall_save_pickles", default=False)
allows_pickles = contextvars.ContextVar("hostcall_allow_pickle", default=False)


def save_options(*, pickle: bool = False) -> AbstractContextManager[None]:
    """Set how this thread saves models inside the context.

    The options hold for every way to write a SavedModel: `tf.saved_model.save`, Keras's
    `Model.export` and `tf.compat.v1.saved_model`.

    Args:
      pickle: True makes the SavedModel carry Python functions that have no name and that other
        processes cannot import: lambdas, nested functions, methods of objects, and functions of
        the running script. They are pickled by cloudpickle (`pip install 'hostcall[pickle]'`) into
        the model's folder `assets.extra/hostcall`. The objects that a function refers to are copied
        into its pickle, or named there if they can be imported. The model then runs only with the
        same minor version of Python, and needs `hostcall.load_options(allow_pickle=True)`.

    Raises:
      ImportError: by the call that saves a model, when cloudpickle is not installed.
      ValueError: by the call that saves a model, when a function cannot be pickled. One error lists
        all these functions, and the objects in them that cannot be pickled. A `tf.Variable` is
        never pickled: the function would change a copy of it.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
      ... def double(x):
      ...     return tf.numpy_function(lambda v: v * 2, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.double = double
      >>> with hostcall.save_options(pickle=True):
      ...     tf.saved_model.save(module, directory)
    """
    return settings.scoped(pickles_functions, pickle is True)


def load_options(*, allow_pickle: bool = False) -> AbstractContextManager[None]:
    """Set how this thread loads models inside the context.

    Args:
      allow_pickle: True allows calls of the functions that the model carries as pickles. A pickle
        can run any code when it is read, so allow it only for files whose makers you trust.
        A pickle is read at the first call of its function, which may come after the context. Each
        load needs the option again: models that are loaded outside call no pickled functions.

    Raises:
      hostcall.LoweringError: by the call that loads a model, when one of its pickles is missing or
        was altered. Then no pickle is read.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
      ... def halve(x):
      ...     return tf.numpy_function(lambda v: v / 2, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.halve = halve
      >>> with hostcall.save_options(pickle=True):
      ...     tf.saved_model.save(module, directory)
      >>> with hostcall.load_options(allow_pickle=True):  # in any process
      ...     model = tf.saved_model.load(directory)
      >>> float(model.halve(tf.constant(3.0)))
      1.5
    """
    return settings.scoped(allows_pickles, allow_pickle is True)


class UnpicklableError(ValueError):
    """An error for a function that cannot be pickled; the text has a line for each cause."""


def dumps(function: Callable[..., Any], shape_function: Any) -> bytes:
    """Return the pickle of a function and of its shape function or None, as bytes."""
    cloudpickle = _cloudpickle("hostcall.save_options(pickle=True)")
    function = autograph.without_autograph(function)
    problems: dict[str, None] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        """A pickler that replaces each object it cannot pickle, and so finds all of them."""

        def reducer_override(self, value: object) -> object:
            if (why := _why_not(value)) is None:
                try:
                    return self._reduced(value)
                except Exception as error:  # another library's class may raise anything
                    why = str(error)
            problems[f"{_described(value, function)}: {why}"] = None
            return _nothing, ()

        def _reduced(self, value: object) -> object:
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
    """Return the two functions that `dumps` has pickled; to unpickle them can run any code."""
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


def _cloudpickle(what: str) -> types.ModuleType:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError as error:
        raise ImportError(
            f"hostcall: {what} needs cloudpickle, which is not installed here: "
            "pip install 'hostcall[pickle]', or cloudpickle alone."
        ) from error


def _why_not(value: object) -> str | None:
    """Return why an object must not be pickled, although it could be; or None."""
    if isinstance(value, _STATEFUL) and not isinstance(value, _CONTAINERS):
        return _COPY
    if isinstance(value, Native):
        return "it is native code, which lies in this process"
    return None


def _described(value: object, function: object) -> str:
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
# again, and the secrets that permit calls of them. Both are kept until the process ends, since
# a loaded graph may call its functions at any time.
_contents: dict[str, bytes] = {}
_leaves: dict[str, str] = {}


def pickled(function: Callable[..., Any], shape_function: Any, title: str) -> Pickled:
    """Pickle a function and its shape function for a SavedModel, and return the record."""
    data = dumps(function, shape_function)
    sha256 = hashlib.sha256(data).hexdigest()
    _contents[sha256] = data
    return Pickled(sha256, PYTHON, title)


def write_pickle(sha256: str, directory: str) -> bool:
    """Write a pickle into a SavedModel; return False if this process does not have it."""
    if sha256 not in _contents:
        return False
    path = _path(sha256, directory)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(_contents[sha256])
    return True


def read_pickle(sha256: str, directory: str) -> Problem | None:
    """Read a pickle's file without unpickling it; return the problem with the file, or None."""
    path = _path(sha256, directory)
    copy = "# copy the SavedModel once more, with all that is in its directory"
    if os.path.lexists(path) and not os.path.isfile(path):  # reading a pipe may wait forever
        return Problem(f"{path} is not a file", copy)
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


def unpickled(function: Pickled) -> tuple[Any, Any]:
    """Return a pickled function without a problem (`problem_of`), and its shape function."""
    return loads(_contents[function.sha256], function.title)


def _path(sha256: str, directory: str) -> str:
    return os.path.join(directory, *_FOLDER, f"{sha256}.pickle")
