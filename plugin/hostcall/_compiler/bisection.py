"""Which op XLA refuses, where its message does not name one.

A function that is refused so is cut in two, each half a cluster. XLA then refuses one of these, and
that is cut in turn, until it holds a single op: that one goes to the host. What XLA has said of it
is kept, so that the next function with such an op need not be searched.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import tensorflow as tf

from hostcall._compiler import refusals
from hostcall._compiler.partition.boundary_values import TRIVIAL_OPS
from hostcall._tf import attributes
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

_VARIANT = tf.variant.as_datatype_enum

# The ops that were found, by what XLA has said.
_found: defaultdict[str, set[str]] = defaultdict(set)


def mark_found(library: FunctionDefLibrary, refusal: str) -> None:
    """Mark the ops that XLA has refused before in the same words.

    Args:
      library: a FunctionDefLibrary, which is changed.
      refusal: XLA's message.
    """
    said = refusals.summary(refusal)
    for function in library.function:
        for node in defs.nodes_of(function, _found.get(said, ())):
            refusals.mark(node, refusal)


def narrow(library: FunctionDefLibrary, entry: str, refusal: str) -> None:
    """Cut a refused function in two, or put it on the host where it cannot be cut.

    Args:
      library: a FunctionDefLibrary, which is changed.
      entry: the name of the function.
      refusal: XLA's message, which names none of its nodes.
    """
    functions = {function.signature.name: function for function in library.function}
    function = functions[entry]
    for node in function.node_def:
        node.attr.pop(attributes.LATER, None)  # of the cut that the function has come from
    nodes = [node for node in defs.program_order(function) if _is_work(node)]
    if len(nodes) > 1 and not _passes_lists(function, functions):
        for node in _from(function, nodes[len(nodes) // 2]):
            node.attr[attributes.LATER].b = True
        return
    for node in nodes if len(nodes) == 1 else function.node_def:
        refusals.mark(node, refusal)
    if len(nodes) == 1 and defs.called_functions(nodes[0], functions):
        nodes[0].attr[attributes.LATER].b = True  # the search goes on in what it calls
    elif len(nodes) == 1:
        _found[refusals.summary(refusal)].add(nodes[0].op)


def goes_on(function: FunctionDef) -> bool:
    """Tell whether a function was cut, or what it calls is, so that an op is still looked for."""
    return any(attributes.LATER in node.attr for node in function.node_def)


def _is_work(node: NodeDef) -> bool:
    return node.op != "Const" and node.op not in TRIVIAL_OPS


def _passes_lists(function: FunctionDef, functions: dict[str, Any]) -> bool:
    """Whether nodes of a function pass each other values that cannot leave a program."""
    return any(defs.handles(node, _VARIANT, functions) for node in function.node_def)


def _from(function: FunctionDef, first: NodeDef) -> list[NodeDef]:
    """A node of a function and those that come after it."""
    ordered = defs.program_order(function)
    return ordered[[node.name for node in ordered].index(first.name) :]
