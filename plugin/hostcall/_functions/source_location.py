"""Locations in the user's code, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hostcall_runtime._errors import directories_of as directories_of
from hostcall_runtime._interception import without_autograph

HOSTCALL = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

# Matches the description of a CallbackSpec.
_DESCRIPTION = re.compile(
    r"(?P<kind>(?:the gradient of )*[\w.]+) of (?P<name>.+?)"
    r"(?: \((?P<defined_at>.*?:\d+)\))?(?:, called at (?P<called_at>.*:\d+)?)?"
)

Stack = Callable[[], Iterator[tuple[str, int]]]
Original = Callable[[str, int], tuple[str, int]]


def _frames() -> Iterator[tuple[str, int]]:
    """Yield (file, line) of each frame, innermost first."""
    frames = traceback.walk_stack(sys._getframe(1))
    return ((frame.f_code.co_filename, line) for frame, line in frames)


_stack: Stack = _frames
_original: Original = lambda file, line: (file, line)  # noqa: E731


def read_with(stack: Stack, original: Original) -> None:
    """Use autograph's source maps: `original` maps (file, line) of generated code to the user's."""
    global _stack, _original
    _stack, _original = stack, original


def caller() -> str:
    """Return `file:line` of the innermost frame that is not hostcall's, TensorFlow's or JAX's."""
    return innermost(_stack())


def innermost(stack: Iterator[tuple[str, int]]) -> str:
    """Return `file:line` of the first frame outside hostcall, TensorFlow and JAX, or ""."""
    # TensorFlow takes time for each frame, so no more are read than needed. JAX's frames occur
    # because jax2tf creates ops.
    internal = (HOSTCALL, *directories_of("tensorflow", "jax"))
    frame = next((frame for frame in stack if not frame[0].startswith(internal)), None)
    return "{}:{}".format(*frame) if frame is not None else ""


def of_function(function: Callable[..., Any]) -> str:
    """Return a function's name and perhaps `file:line`; once traced, autograph's map is lost."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", "")
    if isinstance(function, np.ufunc):  # has no qualified name before NumPy 2.2
        name = function.__name__
    name = without_autograph(name or repr(function))
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    return "{} ({}:{})".format(name, *_original(code.co_filename, code.co_firstlineno))


def split_description(description: str) -> tuple[str, str, str, str]:
    """Split a description: API, function, its place, the call's place; "" for what it lacks."""
    parts = _DESCRIPTION.fullmatch(description)
    if parts is None:
        return "", description, "", ""
    return (
        parts["kind"].removeprefix("the "),
        parts["name"],
        parts["defined_at"] or "",
        parts["called_at"] or "",
    )
