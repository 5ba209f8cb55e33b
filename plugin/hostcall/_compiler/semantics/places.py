"""The places in the user's code of the nodes of a function that is being rewritten, for messages.

TensorFlow's library has them for the functions that were traced in this process, but only the
kernel hook knows that library. Others say where they find them: see `found_by`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from hostcall._compiler.analyses import node_places
from hostcall._ops import settings
from hostcall._tf.graph import function_names
from hostcall._tf.types import FunctionDef, NodeDef
from hostcall_runtime import _library

# Finds the `file:line` that made a node, by the names of its function and of the node, or "".
Locate = Callable[[str, str], str]

_locate: contextvars.ContextVar[Locate | None] = contextvars.ContextVar("locate", default=None)


def found_by(locate: Locate) -> AbstractContextManager[None]:
    """Let `locate` find the places of nodes inside the context."""
    return settings.scoped(_locate, locate)


def of(node: NodeDef, function: FunctionDef) -> str:
    """Return " at " and `file:line` of the user's code that made a node, or ""."""
    locate = _locate.get() or _in_library
    found = (locate(name, _original(node)) for name in _names(node, function))
    line = next(filter(None, found), "")
    return f" at {line}" if line else ""


def name_of(node: NodeDef) -> str:
    """Return the name that a node has, or that the node had in whose place it was written."""
    return node.name.partition("/hostcall_")[0]


def _in_library(function: str, node: str) -> str:
    trace_of = _library.load("hostcall._tensorflow").trace_of
    return node_places.in_message(trace_of(function, node))


def _original(node: NodeDef) -> str:
    known = node.experimental_debug_info.original_node_names
    return str(known[0]) if known else name_of(node)


def _names(node: NodeDef, function: FunctionDef) -> Iterator[str]:
    """Yield the names of the functions that a node may have been traced in."""
    yield from node.experimental_debug_info.original_func_names
    name = function.signature.name
    yield name
    yield function_names.before_digest(name)
