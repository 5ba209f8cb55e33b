"""Where in the user's code something stands, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._tf import autograph
from hostcall._tf.types import Operation

_INTERNAL = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (os.path.dirname(__file__), tf.__file__)
)

# What autograph puts around a function, and before its name, where it converts one.
_AUTOGRAPH_SCOPES = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.|\btf__")

# Of those that have led to an op.
_MANY_FRAMES = 8

# The description of a CallbackSpec.
_DESCRIPTION = re.compile(
    r"(?P<kind>(?:the gradient of )*[\w.]+) of (?P<name>.+?)"
    r"(?: \((?P<defined_at>.*?:\d+)\))?(?:, called at (?P<called_at>.*:\d+)?)?"
)


def caller() -> str:
    """`file:line` of the innermost frame that is not hostcall's, TensorFlow's or JAX's."""
    return _innermost(autograph.stack())


def of_op(op: Operation) -> str:
    """`file:line` of the user's code that has created an op of a graph, or ""."""
    frames = reversed(op.traceback or ())
    return _innermost((frame.filename, frame.lineno) for frame in frames)


def definition(op: Operation) -> list[str]:
    """The lines of the user's code that have led to an op of a graph, as those of a traceback."""
    internal = (*_INTERNAL, *_directory_of("jax"), *_directory_of("keras"))
    frames = [frame for frame in op.traceback or () if not frame.filename.startswith(internal)]
    return [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name or "<lambda>"}'
        for frame in frames[-_MANY_FRAMES:]
    ]


def _innermost(stack: Iterator[tuple[str, int]]) -> str:
    # Asking TensorFlow for a frame takes time: no more of them than are needed.
    internal = (*_INTERNAL, *_directory_of("jax"))
    frame = next((frame for frame in stack if not frame[0].startswith(internal)), None)
    return "{}:{}".format(*frame) if frame is not None else ""


def _directory_of(package: str) -> tuple[str, ...]:
    """The directory of a package's sources, where it is loaded: jax2tf creates ops for `to_tf`."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return (os.path.dirname(file) + os.sep,) if file else ()


def of_function(function: Callable[..., Any]) -> str:
    """The function's name and, where Python knows it, the `file:line` of its definition.

    To be asked while the op is created: later nobody knows what autograph has made of which file.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    name = _AUTOGRAPH_SCOPES.sub("", getattr(function, "__qualname__", "") or repr(function))
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    return "{} ({}:{})".format(
        name, *autograph.original_location(code.co_filename, code.co_firstlineno)
    )


def split_description(description: str) -> tuple[str, str, str, str]:
    """The parts of a CallbackSpec's description.

    Returns:
      What the user has called, the function's name, where it is defined and where it is called;
      "" for what the description does not say.
    """
    parts = _DESCRIPTION.fullmatch(description)
    if parts is None:
        return "", description, "", ""
    return (
        parts["kind"].removeprefix("the "),
        parts["name"],
        parts["defined_at"] or "",
        parts["called_at"] or "",
    )
