"""The graphs that an op belongs to, and what they keep alive."""

from __future__ import annotations

from typing import Any

from hostcall._tf import names
from hostcall._tf.types import Graph


def owning_graphs() -> list[Any]:
    """The graphs, innermost first, that a script op created now belongs to.

    Empty when executing eagerly. The default graph that TensorFlow keeps in the background of eager
    execution is left out: it never dies, and what is tied to it leaks.
    """
    if names.executing_eagerly():
        return []
    graphs = []
    graph = names.get_default_graph()
    while isinstance(graph, names.FuncGraph | names.FuncGraphOfVersion1):
        graphs.append(graph)
        outer = graph.outer_graph if isinstance(graph, names.FuncGraph) else graph._outer_graph
        if outer is graph:
            break
        graph = outer
    in_background = graphs and names.executing_eagerly_outside_functions()
    return graphs if in_background else [*graphs, graph]


def keep_alive(graph: Graph, value: object) -> None:
    """Makes `graph` own `value`, in the list that stock TensorFlow uses for it."""
    if not hasattr(graph, "_py_funcs_used_in_graph"):
        graph._py_funcs_used_in_graph = []
    graph._py_funcs_used_in_graph.append(value)


def own(value: object) -> None:
    """Makes the graphs own `value` that an op created now belongs to."""
    for graph in owning_graphs():
        keep_alive(graph, value)


def keep_alive_in_background(value: object) -> None:
    """Keeps `value` as long as stock TensorFlow would: until the process ends."""
    keep_alive(names.get_default_graph(), value)


def outermost(graph: Graph) -> Any:
    """The graph that a graph of a function was traced in, or in one that was traced in it."""
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph
