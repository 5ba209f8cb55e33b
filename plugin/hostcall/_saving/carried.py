"""The pickled functions that SavedModels carry: their files, and the leave to call them.

A file has the name of its content's hash, in a folder of the SavedModel that TensorFlow leaves to
others, so that it goes where the SavedModel goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall._saving import pickling
from hostcall._saving.errors import Problem
from hostcall._saving.tokens import Pickled

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
    data = pickling.dumps(function, shape_function)
    sha256 = hashlib.sha256(data).hexdigest()
    _contents[sha256] = data
    return Pickled(sha256, pickling.PYTHON, title)


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
    if function.python != pickling.PYTHON:
        return Problem(
            f"the file holds it as a pickle of Python {function.python}, which {pickling.PYTHON} "
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
    return pickling.loads(_contents[function.sha256], function.title)


def _path(sha256: str, directory: str) -> str:
    return os.path.join(directory, *_FOLDER, f"{sha256}.pickle")
