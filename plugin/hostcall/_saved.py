"""SavedModels that are written and read in the same process."""

from __future__ import annotations

from typing import Any

from hostcall import _tf_private as private

# A SavedModel names its Python functions by token and may be read back any time: they have to live
# as long as the process, as they do without hostcall.
_pinned: dict[str, Any] = {}


def pin_callbacks(meta_graph: Any) -> None:
    """Keeps the functions that a written MetaGraphDef refers to."""
    functions = meta_graph.graph_def.library.function
    for nodes in (meta_graph.graph_def.node, *(function.node_def for function in functions)):
        for node in nodes:
            if node.op in private.SCRIPT_OPS:
                token = node.attr["token"].s.decode()
                _pinned[token] = private.token_registry.get(token)
