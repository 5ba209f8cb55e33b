"""Graphs that are saved or copied: the tokens in them keep the functions that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hostcall._callbacks import call_modules, lookup
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._tf import (
    attributes,
    graph_ownership,
    op_kinds,
    py_function_gradient,
    script_op_graphs,
    token_registry,
)
from hostcall._tf.types import MetaGraphDef

# A SavedModel names its Python functions by token and may be read back any time: they have to live
# as long as the process, as they do without hostcall.
_pinned: dict[str, Any] = {}


def pin_callbacks(meta_graph: MetaGraphDef) -> None:
    """Keeps the functions that a written MetaGraphDef refers to.

    Raises:
      ValueError: when it holds a program of StableHLO that calls Python. That names its
        functions by numbers, which are other functions' in another process.
    """
    nodes = script_op_graphs.nodes_of(meta_graph.graph_def)
    if any(attributes.CALLS_PYTHON in node.attr for node in nodes):
        raise ValueError(
            "hostcall: a SavedModel is written of a function that calls a JAX function with "
            "callbacks, by hostcall.jax.to_tf, or an exported program, by hostcall.load. A "
            "SavedModel holds no Python code, and nothing could call it when it is read back. Save "
            "the model without that function: an exported program has files of its own, and can be "
            "loaded beside the SavedModel."
        )
    for token in _tokens(script_op_graphs.nodes_of(meta_graph.graph_def)):
        _pinned[token] = token_registry.find(token)


def own_callbacks(nodes: Iterable[Any]) -> None:
    """Lets the default graph own the functions that nodes refer to which are copied into it."""
    if not (token_registry.functions.size() or call_modules.any_module()):
        return
    nodes = list(nodes)
    call_modules.own_modules(nodes)
    for token in _tokens(nodes):
        graph_ownership.own(token_registry.find(token))
    if any(node.op == op_kinds.EAGER_PY_FUNC for node in nodes):
        for op in script_op_graphs.py_functions_of_default_graph():
            spec = token_registry.find(op.get_attr("token").decode())
            if isinstance(spec, EagerSpec) and spec.has_own_gradient:
                py_function_gradient.give_to(op)


def _tokens(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if node.op in op_kinds.SCRIPT_OPS:
            yield lookup.token_of(node)
