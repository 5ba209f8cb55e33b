"""Graphs that are copied: the tokens in them keep the functions that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hostcall._callbacks import call_modules, lookup
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._tf import (
    graph_ownership,
    op_kinds,
    py_function_gradient,
    script_op_graphs,
    token_registry,
)


def own_callbacks(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the functions that nodes refer to which are copied into it."""
    nodes = list(nodes)
    call_modules.own_modules(nodes)
    for token in _tokens(nodes):
        graph_ownership.own(token_registry.find_present(token))
    if any(node.op == op_kinds.EAGER_PY_FUNC for node in nodes):
        for op in script_op_graphs.py_functions_of_default_graph():
            token = op.get_attr("token").decode(errors="replace")
            if token_registry.is_qualified(token):
                script_op_graphs.note_script_op(op)
            spec = token_registry.find_present(token)
            if isinstance(spec, EagerSpec) and spec.has_own_gradient:
                py_function_gradient.give_to(op)


def _tokens(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if node.op in op_kinds.SCRIPT_OPS:
            yield lookup.token_of(node)
