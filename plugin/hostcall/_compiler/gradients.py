"""What the forward function of a gradient tells of the gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hostcall._compiler.sizes import sources
from hostcall._tf import concrete_functions
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FunctionDefLibrary

# The attribute of a backward function that names its forward function.
_FORWARD = "forward_function_name"


def forward_library(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary | None:
    """Return the forward function of a gradient and the functions that it reaches, or None."""
    function = next(f for f in library.function if f.signature.name == entry)
    if _FORWARD not in function.attr:
        return None
    found: dict[str, Any] = {}

    def called(name: str) -> Iterable[str]:
        forward = concrete_functions.function_of_context(name)
        if forward is None:
            return ()
        found[name] = forward
        return [callee.name for node in forward.node_def for callee in defs.callees(node)]

    for _ in reach([function.attr[_FORWARD].s.decode()], called):
        pass
    return protos.function_pb2.FunctionDefLibrary(function=found.values()) if found else None


def takes_bounded_sizes(library: FunctionDefLibrary, entry: str) -> bool:
    """Return whether a function is a gradient that takes values of sizes found at run time."""
    forward = forward_library(library, entry)
    return forward is not None and any(
        defs.nodes_of(function, sources.ALWAYS) for function in forward.function
    )
