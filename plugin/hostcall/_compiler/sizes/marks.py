"""Marks on the ops that bounded sizes put on the host, or that XLA has to know the sizes of."""

from __future__ import annotations

from hostcall._compiler.sizes.search import Search
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef


def mark(search: Search) -> None:
    """Mark the ops of a program that are blocked or have bounded results."""
    places = [*search.script_ops, *search.blocked, *search.bounded]
    for name in dict.fromkeys(name for name, _ in places):
        _mark(name, search.functions[name], search)


def _mark(name: str, function: FunctionDef, search: Search) -> None:
    names = {n for places in (search.blocked, search.bounded) for f, n in places if f == name}
    nodes = defs.nodes_of(function, op_kinds.SCRIPT_OPS)
    if names:
        nodes += [node for node in function.node_def if node.name in names]
    for node in nodes:
        place = (name, node.name)
        if place in search.blocked:
            node.attr[attributes.BLOCKER].s = search.blocked[place].encode()
        else:
            dims = sorted(search.bounded.get(place, ()))
            protos.set_pairs(node, attributes.PREDICTED, dims)
