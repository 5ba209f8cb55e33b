"""The places in the user's code that created the nodes of compiled functions, for messages.

A FunctionDef does not record them. The graphs that it was made from do, as long as they live. The
script ops of a program lead to these graphs. So does TensorFlow's library for the functions that
were traced in this process, but only the kernel hook knows that library; others say where they find
the places of a function that is being rewritten: see `found_by`.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any

from hostcall._functions import source_location
from hostcall._ops import lookup, settings
from hostcall._tf import autograph, script_op_graphs
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_names, op_kinds
from hostcall._tf.types import ConcreteFunction, FunctionDef, Functions, Graph, NodeDef
from hostcall_runtime import _library

_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def in_message(message: str) -> str:
    """Return `file:line` of the user's code that made the op in a message of XLA's, or ""."""
    # The innermost frame of the first trace; the later traces are about the functions around.
    head, *_ = message.partition("tf2xla conversion failed")
    frames = [(at["file"], int(at["line"])) for at in reversed([*_LINE.finditer(head)])]
    cut = {file for file, _ in frames if not os.path.isabs(file) and _is_missing(file)}
    prefix = _what_is_missing(cut) if cut else ""
    return source_location.innermost(
        (prefix + file if file in cut else file, line) for file, line in frames
    )


def _is_missing(file: str) -> bool:
    return not (file.startswith("<") or os.path.exists(file))


def _what_is_missing(files: Collection[str]) -> str:
    """Return what TensorFlow has taken from the files of a trace: what all paths began with."""
    one = next(iter(files))
    for module in [*sys.modules.values()]:
        path = getattr(module, "__file__", None) or ""
        prefix = path.removesuffix(one)
        if prefix.endswith(os.sep) and all(os.path.exists(prefix + file) for file in files):
            return prefix
    return ""


def locator(concrete: ConcreteFunction) -> Callable[[str, str], str]:
    """Return a function that finds the `file:line` of a node, by the names of function and node."""
    graphs = script_op_graphs.graphs_of(concrete.graph)
    graphs[concrete.function_def.signature.name] = concrete.graph

    def locate(function: str, node: str) -> str:
        try:
            op = graphs[function].get_operation_by_name(node)
        except KeyError:
            return ""
        return autograph.place_of(op)

    return locate


def describe_place(functions: Functions, function: str, node: str, op: str) -> str:
    """Return " at " and `file:line` of what created a node of type `op` in a function, or ""."""
    for definition in functions.values():
        for script_op in defs.nodes_of(definition, op_kinds.SCRIPT_OPS):
            spec = lookup.own_spec_of(script_op)
            created = spec.op() if spec is not None and spec.op is not None else None
            if created is None:
                continue
            for graph in _graphs_around(created.graph, function):
                if place := _in_graph(graph, node, op):
                    return f" at {place}"
    return ""


def _in_graph(graph: Graph, node: str, op: str) -> str:
    for name in _names(node):
        with contextlib.suppress(KeyError, ValueError):
            found = graph.get_operation_by_name(name)
            if found.type == op:
                return autograph.place_of(found)
    return ""


def _graphs_around(graph: Graph, function: str) -> Iterator[Any]:
    """Yield the graphs that a function may have been traced as, the likeliest one first."""
    graphs = script_op_graphs.graphs_of(script_op_graphs.outermost(graph))
    graphs |= script_op_graphs.graphs_of(graph)
    if function in graphs:
        yield graphs[function]
    yield graph
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
        yield graph
        yield from script_op_graphs.graphs_of(graph).values()


def _names(node: str) -> Iterator[str]:
    """Yield the names that a node may have had before it became part of a FunctionDef."""
    yield node
    stem, _, number = node.rpartition("_")
    if number.isdigit():
        yield stem


# Finds the `file:line` that made a node, by the names of its function and of the node, or "".
Locate = Callable[[str, str], str]

_locate: contextvars.ContextVar[Locate | None] = contextvars.ContextVar("locate", default=None)


def found_by(locate: Locate) -> AbstractContextManager[None]:
    """Let `locate` find the places of nodes inside the context."""
    return settings.scoped(_locate, locate)


def of_written(node: NodeDef, function: FunctionDef) -> str:
    """Return " at " and `file:line` of the user's code that made a node, or ""."""
    locate = _locate.get() or _in_library
    found = (locate(name, _original(node)) for name in _functions_of(node, function))
    line = next(filter(None, found), "")
    return f" at {line}" if line else ""


def name_of(node: NodeDef) -> str:
    """Return the name that a node has, or that the node had in whose place it was written."""
    return node.name.partition("/hostcall_")[0]


def _in_library(function: str, node: str) -> str:
    trace_of = _library.load("hostcall._tensorflow").trace_of
    return in_message(trace_of(function, node))


def _original(node: NodeDef) -> str:
    known = node.experimental_debug_info.original_node_names
    return str(known[0]) if known else name_of(node)


def _functions_of(node: NodeDef, function: FunctionDef) -> Iterator[str]:
    """Yield the names of the functions that a node may have been traced in."""
    yield from node.experimental_debug_info.original_func_names
    name = function.signature.name
    yield name
    yield function_names.before_digest(name)
