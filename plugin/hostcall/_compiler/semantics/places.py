"""The places in the user's code of the nodes of a function that is being rewritten, for messages.

TensorFlow's library has them for the functions that were traced in this process.
"""

from __future__ import annotations

from collections.abc import Iterator

from hostcall._compiler import refusals
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime import _library


def of(node: NodeDef, function: FunctionDef) -> str:
    """Return " at " and `file:line` of the user's code that made a node, or ""."""
    trace_of = _library.load("hostcall._tensorflow").trace_of
    for name in _names(node, function):
        if line := refusals.line_of(trace_of(name, _original(node))):
            return f" at {line}"
    return ""


def _original(node: NodeDef) -> str:
    known = node.experimental_debug_info.original_node_names
    return str(known[0]) if known else str(node.name)


def _names(node: NodeDef, function: FunctionDef) -> Iterator[str]:
    """Yield the names of the functions that a node may have been traced in."""
    yield from node.experimental_debug_info.original_func_names
    name = function.signature.name
    yield name
    yield defs.before_digest(name)
