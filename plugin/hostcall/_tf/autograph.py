"""What autograph does to functions, and where the user wrote an op."""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from hostcall._functions.source_location import HOSTCALL, directories_of, innermost
from hostcall._tf import features, script_op_graphs
from hostcall._tf.types import Operation, TracingFunction

F = TypeVar("F", bound=Callable[..., Any])
do_not_convert: Callable[[F], F] = tf.autograph.experimental.do_not_convert
_quick = features.QUICK_CALLS.available
_AUTOGRAPH_IS_OFF = features.ControlStatusCtx(features.AUTOGRAPH_DISABLED) if _quick else None


def leave_alone(*functions: Any) -> None:
    """Has autograph call these functions, and the objects of these classes, as they are.

    What they do about tensors has to be `do_not_convert`'s.
    """
    marks = vars(do_not_convert(lambda: None))
    for function in functions:
        for key in marks.keys() - {"__wrapped__"}:
            setattr(function, key, marks[key])


def called_unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in whose calls autograph converts nothing.

    What `do_not_convert` does takes more time than many callbacks. It is done for code that
    autograph has written, as of functions that are defined in a tf.function; other code does not
    ask autograph.
    """
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and "ag__" not in code.co_freevars:
        return function
    if not _quick:
        return do_not_convert(function)
    statuses = features.autograph_statuses

    def call(*args: Any, **kwargs: Any) -> Any:
        stack = statuses()
        stack.append(_AUTOGRAPH_IS_OFF)
        try:
            return function(*args, **kwargs)
        finally:
            stack.pop()

    return call


def without_autograph(function: Callable[..., Any]) -> Any:
    """`function`, or what it calls where it is autograph's wrapper around the user's function."""
    code = getattr(function, "__code__", None)
    if not features.LOCATIONS.available or code is None:
        return function
    if code.co_filename != features.autograph_api.__file__:
        return function
    return inspect.getclosurevars(function).nonlocals.get("func", function)


def unwrapped(function: Callable[..., Any]) -> Any:
    """The user's function behind the wrapper that keeps autograph out of it."""
    # Around what is no function (a ufunc, say) the wrapper says nothing of what it wraps.
    return without_autograph(inspect.unwrap(function))


def uses_autograph(function: TracingFunction) -> bool:
    """What a tf.function was given as `autograph`."""
    features.EXPORTING.require()
    return bool(function._autograph)


def stack() -> Iterator[tuple[str, int]]:
    """(file, line) of each frame, innermost first, autograph's generated code mapped back."""
    if not features.LOCATIONS.available:
        frames = traceback.walk_stack(sys._getframe(1))
        return ((frame.f_code.co_filename, line) for frame, line in frames)
    return ((frame.filename, frame.lineno) for frame in reversed(features.extract_stack()))


def original_location(file: str, line: int) -> tuple[str, int]:
    """Where the user wrote what autograph has copied to `file` and `line`; for the rest the same.

    Only while the function that autograph converted is traced.
    """
    if not features.LOCATIONS.available:
        return file, line
    for mapper in reversed(features.source_mappers[threading.get_ident()]):
        known = mapper.get_effective_source_map()
        # A function's first line may be that of a decorator, which only autograph has written.
        later = [at for name, at in known if name == file and at >= line]
        if later:
            return known[file, min(later)][0], known[file, min(later)][1]
    return file, line


def is_traced_to_compile() -> bool:
    """Whether what is traced now is, or lies in, a function with `jit_compile=True`.

    Nothing but the frame that traces a function knows it yet. A function of ours around that one
    would be seen in each error of a graph, among the user's frames.
    """
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


# Of those that have led to an op.
_MANY_FRAMES = 8


def of_op(op: Operation) -> str:
    """`file:line` of the user's code that has created an op of a graph, or ""."""
    frames = reversed(op.traceback or ())
    return innermost((frame.filename, frame.lineno) for frame in frames)


def definition(op: Operation) -> list[str]:
    """The lines of the user's code that have led to an op of a graph, as those of a traceback."""
    internal = (HOSTCALL, *directories_of("tensorflow", "jax", "keras"))
    frames = [frame for frame in op.traceback or () if not frame.filename.startswith(internal)]
    return [
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name or "<lambda>"}'
        for frame in frames[-_MANY_FRAMES:]
    ]
