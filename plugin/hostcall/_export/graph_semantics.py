"""Graph mode's values and errors in exported programs, which cannot call TensorFlow's kernels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from hostcall._compiler import function_routes, ops, wrong_kernels
from hostcall._compiler.analyses import node_places
from hostcall._compiler.semantics import failures, places
from hostcall._compiler.sizes import analysis
from hostcall._ops import settings
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import ConcreteFunction, FunctionDefLibrary

_KEPT = """\
{place}: the program computes with XLA, not as TensorFlow's kernels do,

{listed}

Do this outside of the function, or in a callback. If XLA's values and errors will do, there and in
the whole program, say so before the export: hostcall.configure(semantics="xla")"""


def written(
    library: FunctionDefLibrary, traced: ConcreteFunction, place: str
) -> tuple[FunctionDefLibrary, str]:
    """Write a function of a library, and what it reaches, as XLA is to compile it as a whole."""
    # Returned are a copy of the library, and a suffix for the names of functions made of it. The
    # kernel hook does the same with the functions that run in this process.
    name = traced.function_def.signature.name
    is_graph = settings.current.semantics == settings.GRAPH
    is_graph = is_graph and function_routes.is_taken(library, name)
    marked = analysis.marked(library, name, whole=True, compiled=True, of_graph=is_graph)
    if not is_graph:
        return marked, ""
    with places.found_by(node_places.locator(traced)):
        if kept := list(dict.fromkeys(_kept(marked, name))):
            listed = "\n".join(f"  - {one}" for one in kept)
            warnings.warn(_KEPT.format(place=place, listed=listed), UserWarning, stacklevel=6)
        raising = failures.add(marked, name)
    return raising, "__raising" if raising is not marked else ""


def _kept(library: FunctionDefLibrary, entry: str) -> Iterator[str]:
    """Describe the ops that TensorFlow's kernels compute in this process, but not in a program."""
    for function in defs.reachable(library, entry).values():
        found = defs.nodes_of(function, ops.FOR_HOST)
        nodes = {node.name: node for node in function.node_def} if found else {}
        for node in found:
            if wrong_kernels.goes_to_host(node, nodes):
                op = f"op '{node.name}' ({node.op}){places.of(node, function)}"
                yield f"{op}: {wrong_kernels.reason(node, nodes)}"
