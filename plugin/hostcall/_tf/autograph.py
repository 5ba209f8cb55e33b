"""Autograph: the functions that it must not convert, and the user's locations behind its code."""

from __future__ import annotations

import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from hostcall._functions.source_location import HOSTCALL, directories_of, innermost
from hostcall._tf import features, script_op_graphs
from hostcall._tf.types import Operation

F = TypeVar("F", bound=Callable[..., Any])
do_not_convert: Callable[[F], F] = tf.autograph.experimental.do_not_convert
_quick = features.QUICK_CALLS.available
_AUTOGRAPH_IS_OFF = features.ControlStatusCtx(features.AUTOGRAPH_DISABLED) if _quick else None


def leave_alone(*functions: Any) -> None:
    """Keep autograph from converting these functions and classes, but not the calls inside them."""
    marks = vars(do_not_convert(lambda: None))
    for function in functions:
        for key in marks.keys() - {"__wrapped__"}:
            setattr(function, key, marks[key])


def called_unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or a wrapper in whose calls autograph converts nothing."""
    # The wrapper of `do_not_convert` takes more time than many callbacks. So only code that
    # autograph has generated gets a wrapper, such as a function defined in a tf.function. Other
    # code never calls autograph.
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and "ag__" not in code.co_freevars:
        return function
    if not _quick:
        return do_not_convert(function)
    statuses = features.autograph_statuses

    def call(*args: Any, **kwargs: Any) -> object:
        stack = statuses()
        stack.append(_AUTOGRAPH_IS_OFF)
        try:
            return function(*args, **kwargs)
        finally:
            stack.pop()

    return call


def without_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or the user's function if `function` is autograph's wrapper around it."""
    code = getattr(function, "__code__", None)
    if not features.LOCATIONS.available or code is None:
        return function
    if code.co_filename != features.autograph_api.__file__:
        return function
    user: Callable[..., Any] = inspect.getclosurevars(function).nonlocals.get("func", function)
    return user


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the user's function behind the wrapper of `do_not_convert`."""
    # Around a callable that is not a function (such as a ufunc) the wrapper has no `__wrapped__`.
    return without_autograph(inspect.unwrap(function))


def uses_autograph(function: tf.types.experimental.PolymorphicFunction) -> bool:
    """Return the argument `autograph` of a tf.function."""
    features.EXPORTING.require()
    return bool(function._autograph)


def stack() -> Iterator[tuple[str, int]]:
    """Return each frame's (file, line), innermost first, autograph's code mapped to the user's."""
    return ((frame.filename, frame.lineno) for frame in reversed(features.extract_stack()))


def original_location(file: str, line: int) -> tuple[str, int]:
    """Return the user's location of code that autograph copied to `file` and `line`."""
    # Other locations are returned unchanged. The mapping exists only while the function is traced.
    for mapper in reversed(features.source_mappers[threading.get_ident()]):
        known = mapper.get_effective_source_map()
        # A function's first line may be a decorator that autograph added, which maps to nothing.
        later = [at for name, at in known if name == file and at >= line]
        if later:
            return known[file, min(later)][0], known[file, min(later)][1]
    return file, line


def is_traced_to_compile() -> bool:
    """Return whether the current tracing is inside a function with `jit_compile=True`."""
    # During tracing, only the frame that traces the function knows this. A wrapper of ours around
    # that frame's function would appear among the user's frames in each error of a graph.
    if not features.SPECS_IN_TOUT.available:
        return False
    graphs = script_op_graphs.owning_graphs()
    frame = sys._getframe() if graphs else None
    while frame is not None:
        if frame.f_code is features.create_concrete_function.__code__:
            attributes = frame.f_locals["tracing_options"].attributes or {}
            if attributes.get(features.XLA_COMPILE) and frame.f_locals["func_graph"] in graphs:
                return True
        frame = frame.f_back
    return False


_MANY_FRAMES = 3  # the most frames that `definition` shows


def place_of(op: Operation) -> str:
    """Return `file:line` of the user's code that has created an op of a graph, or ""."""
    frames = reversed(op.traceback or ())
    return innermost((frame.filename, frame.lineno) for frame in frames)


def definition(op: Operation) -> list[str]:
    """Return the user's frames that have led to an op of a graph, as lines of a traceback."""
    internal = (HOSTCALL, *directories_of("tensorflow", "jax", "keras"))
    frames = [frame for frame in op.traceback or () if not frame.filename.startswith(internal)]
    return [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name or "<lambda>"}'
        for frame in frames[-_MANY_FRAMES:]
    ]
