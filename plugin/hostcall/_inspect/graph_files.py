"""Graphs in files: SavedModels, and GraphDefs and MetaGraphDefs of TensorFlow's own writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from hostcall._inspect import script_ops
from hostcall._inspect.facts import InspectionError, PythonFunction, merged
from hostcall._inspect.inspection import Inspection
from hostcall._tf import concrete_functions, script_op_graphs
from hostcall._tf import function_defs as defs
from hostcall._tf.types import GraphDef, MetaGraphDef

# A signature that TensorFlow adds by itself.
_INIT = "__saved_model_init_op"
_CARRIED_APART = (
    "Pickles lie beside the graph in a SavedModel, and nowhere else: a graph of its own has none."
)


def of_saved_model(path: Path) -> Inspection:
    """The functions of a SavedModel.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        model = concrete_functions.read_saved_model(str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InspectionError(f"{path} holds no SavedModel that can be read: {reason}") from error
    if not model.meta_graphs:
        raise InspectionError(f"{path} holds a SavedModel without a graph.")
    several = len(model.meta_graphs) > 1
    functions = []
    for graph in model.meta_graphs:
        tags = f" ({', '.join(graph.meta_info_def.tags)})" if several else ""
        functions += _functions(graph.graph_def, _roots(graph), str(path), tags)
    return Inspection(str(path), "SavedModel", merged(functions))


def of_graph(path: Path) -> Inspection:
    """The functions of a GraphDef, as `tf.io.write_graph` writes it.

    Raises:
      InspectionError: when it cannot be read.
    """
    graph = tf.compat.v1.GraphDef()
    _read(path, graph)
    functions = merged(_functions(graph, {}, None, ""))
    return Inspection(str(path), "GraphDef", functions, _notes(functions))


def of_meta_graph(path: Path) -> Inspection:
    """The functions of a MetaGraphDef, as `tf.compat.v1.train.export_meta_graph` writes it.

    Raises:
      InspectionError: when it cannot be read.
    """
    graph = tf.compat.v1.MetaGraphDef()
    _read(path, graph)
    functions = merged(_functions(graph.graph_def, _roots(graph), None, ""))
    return Inspection(str(path), "MetaGraphDef", functions, _notes(functions))


def _notes(functions: Iterable[PythonFunction]) -> tuple[str, ...]:
    return (_CARRIED_APART,) if any(function.pickle for function in functions) else ()


def _read(path: Path, message: Any) -> None:
    data = path.read_bytes()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(data.decode(), message)
        else:
            message.ParseFromString(data)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InspectionError(
            f"{path} holds no {message.DESCRIPTOR.name} that can be read: {reason}"
        ) from error


def _functions(
    graph: GraphDef, roots: Mapping[str, list[str]], directory: str | None, tags: str
) -> list[PythonFunction]:
    """Those that the nodes of a graph name, a use each.

    Args:
      graph: the graph.
      roots: for the names of functions and nodes, what of the file they are to the user.
      directory: of the SavedModel, for pickles.
      tags: what follows the names of a graph among several.
    """
    reached = _reached_from(graph, roots)
    shapes = script_ops.Shapes(graph)
    found: list[PythonFunction] = []
    for function, node in script_op_graphs.nodes_by_function(graph):
        of = reached.get(function or node.name) or ([function] if function else ["the graph"])
        use = script_ops.Place(tuple(f"{name}{tags}" for name in of), function, node, shapes)
        found += script_ops.functions_of(use, directory)
    return found


def _roots(graph: MetaGraphDef) -> dict[str, list[str]]:
    """What the user calls the functions and nodes of a MetaGraphDef."""
    roots: dict[str, list[str]] = {}
    for name, signature in graph.signature_def.items():
        if name != _INIT:
            for output in signature.outputs.values():
                roots.setdefault(output.name.partition(":")[0], []).append(f"signature {name}")
    for path, node in _objects(graph.object_graph_def):
        for function in node.function.concrete_functions:
            roots.setdefault(function, []).append(path)
    return roots


def _objects(graph: Any) -> Iterable[tuple[str, Any]]:
    """The objects of a SavedModel, with the way to each from its root: "encoder.layer"."""
    seen, pending = {0}, [("", 0)] if graph.nodes else []
    while pending:
        path, number = pending.pop(0)
        yield path, graph.nodes[number]
        for child in graph.nodes[number].children:
            if child.node_id not in seen and 0 <= child.node_id < len(graph.nodes):
                seen.add(child.node_id)
                name = f"{path}.{child.local_name}" if path else child.local_name
                pending.append((name, child.node_id))


def _reached_from(graph: GraphDef, roots: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """For functions and nodes of the graph, what the user calls that leads there."""
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = {node.name: node for node in graph.node}
    reached: dict[str, list[str]] = {}
    for root, names in roots.items():
        seen, pending = {root}, [root]
        while pending:
            at = pending.pop()
            reached[at] = list(dict.fromkeys([*reached.get(at, []), *names]))
            steps = [] if at not in nodes else [_source(value) for value in nodes[at].input]
            inside = functions[at].node_def if at in functions else [nodes[at]] * (at in nodes)
            steps += [name for node in inside for name in defs.called_functions(node, functions)]
            pending += [step for step in steps if step not in seen]
            seen.update(steps)
    return reached


def _source(value: str) -> str:
    return value.removeprefix("^").partition(":")[0]
