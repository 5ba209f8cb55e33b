"""What is done to a graph when its tracing has ended."""

from __future__ import annotations

from itertools import pairwise

from hostcall._callbacks import consumer_shapes, requested_routes, traced_shapes
from hostcall._tf import script_op_graphs
from hostcall._tf.types import FuncGraph


def finish(func_graph: FuncGraph) -> None:
    """Called by TensorFlow with each FuncGraph that it has traced."""
    if replaced := script_op_graphs.replaced_ops_of(func_graph):
        script_op_graphs.must_not_run(func_graph, replaced)
    for op in script_op_graphs.script_ops_of(func_graph):
        traced_shapes.write(op)
    for op in script_op_graphs.table_lookups_of(func_graph):
        traced_shapes.write(op)  # Python knows more of tables than the op's shape function
    consumer_shapes.note(func_graph)
    requested_routes.mark_others(func_graph)
    if script_op_graphs.calls_functions(func_graph):
        script_op_graphs.mark_differing_branches(func_graph)
        _order_jitted_calls(func_graph)


def _order_jitted_calls(func_graph: FuncGraph) -> None:
    """Orders calls of compiled functions with the script ops around them.

    TensorFlow orders stateful ops by control edges, but leaves out calls of functions with
    `jit_compile=True`, and does not run those whose results are unused either.
    """
    ops = func_graph.get_operations()
    jitted = [
        op for op in ops if script_op_graphs.is_jitted_call(op) and script_op_graphs.has_effect(op)
    ]
    if not jitted:
        return
    effects = [op for op in ops if script_op_graphs.has_effect(op)]
    for before, after in pairwise(effects):
        if script_op_graphs.is_jitted_call(before) or script_op_graphs.is_jitted_call(after):
            script_op_graphs.add_control_edge(before, after)
    script_op_graphs.must_run(func_graph, jitted)
