"""What is done to a graph that is saved: its script ops get qualified tokens."""

from __future__ import annotations

import warnings
from typing import Any

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._saving import recording, resolving, tokens
from hostcall._tf import attributes, op_kinds, script_op_graphs, source_location, token_registry
from hostcall._tf.types import MetaGraphDef

_UNNAMED = """\
hostcall: a SavedModel is written, and another process could not find these Python functions in it:

{listed}

Here the model works. For other processes, define each at the top level of a module that they can
import, or give it a name before the model is saved, and a function for the name where it is loaded:

{lines}"""

# The functions that SavedModels name by tokens of this process: they have to live as long as it.
_pinned: dict[str, Any] = {}


def name_functions(meta_graph: MetaGraphDef) -> None:
    """Gives the script ops of a MetaGraphDef tokens by which any process finds their functions.

    Those of functions that have no name stay what they are, and a warning lists them.

    Raises:
      ValueError: when the graph holds a program of StableHLO that calls Python. That names its
        functions by numbers, which are other functions' in another process.
    """
    nodes = list(script_op_graphs.nodes_of(meta_graph.graph_def))
    _refuse_modules(nodes)
    nodes = [node for node in nodes if node.op in op_kinds.SCRIPT_OPS]
    entries = {token: token_registry.find_present(token) for token in map(lookup.token_of, nodes)}
    asked = recording.asked_of(list(entries.values()))
    unnamed: dict[str, str] = {}
    written: dict[str, str] = {}
    for token, entry in entries.items():
        if entry is None and token_registry.is_qualified(token):
            continue  # nobody has called it since it was loaded
        try:
            written[token] = _qualified(entry, asked)
        except recording.UnnamedError as error:
            _pinned[token] = entry
            unnamed[_described(token, entry)] = str(error)
    for node in nodes:
        token = lookup.token_of(node)
        node.attr["token"].s = written.get(token, token).encode()
    if unnamed:
        _warn(unnamed)


def _qualified(entry: Any, asked: recording.Asked) -> str:
    if entry is None:
        raise recording.UnnamedError("it does not exist any more, here either")
    token = tokens.encode(recording.record_of(entry, asked))
    resolving.keep(token, entry)
    return token


def _described(token: str, entry: Any) -> str:
    if isinstance(entry, CallbackSpec):
        return entry.description
    if entry is None:
        return f"the function with the key {token}"
    return source_location.of_function(getattr(entry, "_func", entry))


def _warn(unnamed: dict[str, str]) -> None:
    listed = "\n".join(f"  - {which}: {reason}" for which, reason in unnamed.items())
    names = {_name_of(description): None for description in unnamed}
    lines = "\n".join(
        f'    hostcall.register({name}, "mymodel::{name}")      # here\n'
        f'    hostcall.provide("mymodel::{name}", {name})       # there'
        for name in names
    )
    warnings.warn(_UNNAMED.format(listed=listed, lines=lines), UserWarning, stacklevel=2)


def _name_of(description: str) -> str:
    """What the user may call a function in the lines to write."""
    name = source_location.split_description(description)[1].rpartition(".")[2]
    return name if name.isidentifier() else "function"


def _refuse_modules(nodes: list[Any]) -> None:
    if any(attributes.CALLS_PYTHON in node.attr for node in nodes):
        raise ValueError(
            "hostcall: a SavedModel is written of a function that calls a JAX function with "
            "callbacks, by hostcall.jax.to_tf, or an exported program, by hostcall.load. A "
            "SavedModel holds no Python code, and nothing could call it when it is read back. Save "
            "the model without that function: an exported program has files of its own, and can be "
            "loaded beside the SavedModel."
        )
