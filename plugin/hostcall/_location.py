"""Where in the user's code something stands, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hostcall import _tf_private as private

_INTERNAL = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, tf.__file__)
)

# What autograph puts around a function, and before its name, where it converts one.
_AUTOGRAPH_SCOPES = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.|\btf__")


def caller() -> str:
    """`file:line` of the innermost frame that is not hostcall's or TensorFlow's."""
    frames = [frame for frame in private.stack() if not frame[0].startswith(_INTERNAL)]
    return "{}:{}".format(*frames[-1]) if frames else ""


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
        name, *private.original_location(code.co_filename, code.co_firstlineno)
    )
