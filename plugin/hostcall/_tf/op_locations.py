"""Where in the user's code an op of a graph was created, for messages."""

from __future__ import annotations

from hostcall._functions.source_location import HOSTCALL, directories_of, innermost
from hostcall._tf.types import Operation

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
