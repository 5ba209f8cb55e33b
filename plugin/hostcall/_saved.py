"""Graphs that are saved or copied: the tokens in them keep the functions that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hostcall import _tf_private as private

# A SavedModel names its Python functions by token and may be read back any time: they have to live
# as long as the process, as they do without hostcall.
_pinned: dict[str, Any] = {}


def pin_callbacks(meta_graph: Any) -> None:
    """Keeps the functions that a written MetaGraphDef refers to."""
    for token in _tokens(private.nodes_of(meta_graph.graph_def)):
        _pinned[token] = private.token_registry.get(token)


def own_callbacks(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the functions that nodes refer to which are copied into it."""
    for token in _tokens(nodes):
        private.own(private.token_registry.get(token))


def _tokens(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if node.op in private.SCRIPT_OPS:
            yield node.attr["token"].s.decode()
