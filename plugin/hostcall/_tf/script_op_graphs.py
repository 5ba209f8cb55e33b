"""Script ops in graphs: lists of them, the graphs that own them, and the ops beside them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from hostcall._tf import features, token_registry
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FuncGraph, Graph, GraphDef, Operation


def owning_graphs() -> list[Any]:
    """Return the graphs, innermost first, that a script op created now belongs to."""
    # The list is empty in eager execution. TensorFlow keeps a default graph in the background of
    # eager execution. It is left out, since it never dies and all that it owns leaks.
    if features.executing_eagerly():
        return []
    graphs = []
    graph = features.get_default_graph()
    while isinstance(graph, features.FuncGraph | features.FuncGraphOfVersion1):
        graphs.append(graph)
        outer = graph.outer_graph if isinstance(graph, features.FuncGraph) else graph._outer_graph
        if outer is graph:
            break
        graph = outer
    in_background = graphs and features.executing_eagerly_outside_functions()
    return graphs if in_background else [*graphs, graph]


def keep_alive(graph: Graph, value: object) -> None:
    """Make `graph` own `value`, in the list that stock TensorFlow uses for this."""
    if not hasattr(graph, "_py_funcs_used_in_graph"):
        graph._py_funcs_used_in_graph = []
    graph._py_funcs_used_in_graph.append(value)


def own(value: object) -> None:
    """Make the graphs that an op created now belongs to own `value`."""
    for graph in owning_graphs():
        keep_alive(graph, value)


def keep_alive_in_background(value: object) -> None:
    """Keep `value` as long as stock TensorFlow would: until the process ends."""
    keep_alive(features.get_default_graph(), value)


def outermost(graph: Graph) -> Graph:
    """Return the outermost of the graphs around a function's graph."""
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph


def shape_of_variable(handle: Any) -> tf.TensorShape:
    """Return the shape of the variable that a handle, a tensor of a graph, refers to."""
    if not features.TRACING.available:
        return tf.TensorShape(None)
    data = features.handle_data(handle)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return tf.TensorShape(None)
    return tf.TensorShape(data.shape_and_type[0].shape)


_WITHOUT_SHAPES = (tf.resource, tf.variant, tf.string)


@contextlib.contextmanager
def marked_ops(marks: dict[str, bool | bytes]) -> Iterator[None]:
    """Put marks (attributes and their values) onto the ops that are created in the context."""
    if features.executing_eagerly():
        yield
        return
    features.PROGRAMS.require()
    values = {
        mark: protos.attr_value_pb2.AttrValue(**{"b" if isinstance(value, bool) else "s": value})
        for mark, value in marks.items()
    }
    with features.get_default_graph()._attr_scope(values):
        yield


def note_script_op(op: Operation) -> None:
    """Record a script op on its graph, for the functions below."""
    if not hasattr(op.graph, "_hostcall_ops"):
        op.graph._hostcall_ops = []
    op.graph._hostcall_ops.append(op)


def script_ops_of(graph: Graph) -> list[Any]:
    """Return the script ops of a graph; for a graph without any this costs one look-up."""
    return list(getattr(graph, "_hostcall_ops", ()))


def new_script_ops_of(graph: Any) -> list[Any]:
    """Return the script ops that are new since the last call; each run of a session calls this."""
    known = getattr(graph, "_hostcall_known_ops", 0)
    new = getattr(graph, "_hostcall_ops", ())[known:]
    if new:
        graph._hostcall_known_ops = known + len(new)
    return list(new)


def table_lookups_of(graph: Any) -> list[Any]:
    """Return the ops of a function's graph that look up keys in a table."""
    if not any(tensor.dtype == tf.resource for tensor in graph.external_captures):
        return []  # tables are made outside of functions
    return [op for op in graph.get_operations() if op.type == "LookupTableFindV2"]


def mark_differing_branches(graph: Any) -> None:
    """Mark the conditionals of a graph whose branches return different shapes."""
    for op in graph.get_operations():
        if op.type not in op_kinds.BRANCH_OPS:
            continue
        bodies = [_body_of(graph, name) for name in _called_by(op)]
        if None in bodies or any(itertools.starmap(_differ, itertools.pairwise(bodies))):
            protos.set_attr(op, attributes.BRANCHES_DIFFER, b=True)


def _body_of(graph: Any, name: str) -> FuncGraph | None:
    return getattr(graph._functions.get(name), "graph", None)


def _differ(body: Any, other: Any) -> bool:
    """Return whether branches' results differ in shape, or probably do; unknown batches do not."""
    for pair in zip(body.outputs, other.outputs, strict=False):
        if pair[0].dtype in _WITHOUT_SHAPES:
            continue
        if None in [tensor.shape.rank for tensor in pair]:
            differ = any(tensor.op.type == "FakeParam" for tensor in pair)
        else:
            differ = pair[0].shape.as_list() != pair[1].shape.as_list()
        if differ:
            return True
    return False


def calls_functions(graph: Any) -> bool:
    """Return whether a graph calls functions."""
    return bool(graph._functions)


def has_effect(op: Operation) -> bool:
    """Return whether an op has side effects in Python, itself or in functions that it calls."""
    if op.type in op_kinds.STATEFUL_SCRIPT_OPS:
        return True
    if op.type == op_kinds.XLA_CALL_MODULE:
        return op_kinds.is_ordered(op.node_def)
    called = _called_by(op) if op.type in op_kinds.CALLING_OPS else ()
    return any(_function_has_effect(op.graph, name) for name in called)


def _function_has_effect(graph: Graph, name: str) -> bool:
    body = _body_of(graph, name)
    if body is None:
        return False
    if not hasattr(body, "_hostcall_effect"):
        body._hostcall_effect = any(has_effect(op) for op in body.get_operations())
    return bool(body._hostcall_effect)


def graphs_of(graph: Graph) -> dict[str, Any]:
    """Return the graphs of the functions that a graph calls, directly or not, by name."""
    found: dict[str, Any] = {}
    pending = [graph]
    while pending:
        for name, function in pending.pop()._functions.items():
            body = getattr(function, "graph", None)
            if body is not None and name not in found:
                found[name] = body
                pending.append(body)
    return found


def branches_with_script_ops(graph: Graph) -> dict[Operation, list[Any]]:
    """Return, for each conditional that leads to script ops, the graphs of its branches."""
    if not graph._functions:
        return {}
    found: dict[Operation, list[Any]] = {}
    for op in graph.get_operations():
        if op.type in op_kinds.BRANCH_OPS:
            called = [_body_of(graph, name) for name in _called_by(op)]
            bodies = [body for body in called if body is not None]
            reached = (g for body in bodies for g in (body, *graphs_of(body).values()))
            if any(map(script_ops_of, reached)):
                found[op] = bodies
    return found


def _called_by(op: Operation) -> list[str]:
    """Return the names of the functions that an op calls."""
    values = op.node_def.attr.values()
    single = [value.func.name for value in values if value.HasField("func")]
    return single + [function.name for value in values for function in value.list.func]


def is_jitted_call(op: Operation) -> bool:
    """Return whether an op calls a function with `jit_compile=True`."""
    return op.type in op_kinds.CALL_OPS and op._control_flow_context is not None


def add_control_edge(before: Operation, after: Operation) -> None:
    """Make one op of a graph run after another."""
    if before not in after.control_inputs:
        after._add_control_input(before)


def note_replaced(graph: Any, ops: list[Any]) -> None:
    """Record ops of a graph that other ops have replaced."""
    graph._hostcall_replaced_ops = [*replaced_ops_of(graph), *ops]


def replaced_ops_of(graph: Graph) -> list[Any]:
    """Return the ops of a graph that other ops have replaced."""
    return list(getattr(graph, "_hostcall_replaced_ops", ()))


def must_not_run(func_graph: Any, ops: list[Any]) -> None:
    """Keep ops whose results nothing uses from running for their side effects."""
    gone = set(ops)
    func_graph.control_outputs[:] = [op for op in func_graph.control_outputs if op not in gone]
    for op in ops:
        protos.set_attr(op, attributes.REPLACED, b=True)
    for op in func_graph.get_operations():
        if op not in gone and not gone.isdisjoint(op.control_inputs):
            before = _others_before(op, gone)
            op._remove_all_control_inputs()
            op._add_control_inputs(before)


def _others_before(op: Any, gone: set[Any]) -> list[Any]:
    """Return the ops that an op waits for once ops are gone, including those that these awaited."""
    awaited = reach(op.control_inputs, lambda one: one.control_inputs if one in gone else ())
    return [one for one in awaited if one not in gone]


def tokens_of(graph: Graph) -> frozenset[str]:
    """Return the titles of the py_functions in a graph and in the functions that it calls."""
    known: frozenset[str] | None = getattr(graph, "_hostcall_tokens", None)
    if known is not None:
        return known
    ops = (op for op in script_ops_of(graph) if op.type == op_kinds.EAGER_PY_FUNC)
    tokens = {token_registry.title_of(op.get_attr("token").decode(errors="replace")) for op in ops}
    for name in graph._functions:
        if (body := _body_of(graph, name)) is not None:
            tokens |= tokens_of(body)
    if isinstance(graph, features.FuncGraph):  # the user may add ops to other graphs
        graph._hostcall_tokens = frozenset(tokens)
    return frozenset(tokens)


def py_functions_of_default_graph() -> list[Any]:
    """Return all ops of the default graph that run a py_function, created by hostcall or not."""
    ops = features.get_default_graph().get_operations()
    return [op for op in ops if op.type == op_kinds.EAGER_PY_FUNC]


def nodes_of(graph_def: GraphDef) -> Iterator[Any]:
    """Return the nodes of a GraphDef, including those in its functions."""
    return (node for _, node in nodes_by_function(graph_def))


def nodes_by_function(graph_def: GraphDef) -> Iterator[tuple[str, Any]]:
    """Yield the nodes of a GraphDef, each after the name of its function; "" is the graph."""
    yield from (("", node) for node in graph_def.node)
    for function in graph_def.library.function:
        yield from ((function.signature.name, node) for node in function.node_def)
