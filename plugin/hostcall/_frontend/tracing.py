"""What is done to a graph when its tracing has ended."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._tf import protos, script_op_graphs

# Where the shapes that tracing ended with stand on a node: a list of shapes, one for each result.
SHAPES_ATTR = "_hostcall_shapes"


def finish(func_graph: Any) -> None:
    """Called by TensorFlow with each FuncGraph that it has traced."""
    for op in script_op_graphs.script_ops_of(func_graph):
        # `set_shape` changes the graph's tensor and not the op: the definition does not hold it.
        shapes = [shape.as_proto() for shape in final_shapes(op)]
        protos.set_attr(op, SHAPES_ATTR, list=protos.shape_list(shapes))
    requested_routes.mark_uncompilable(func_graph)
    if script_op_graphs.any_script_op():
        _order_jitted_calls(func_graph)


def final_shapes(op: Any) -> list[tf.TensorShape]:
    """The shapes of an op's results, with what `tf.ensure_shape` says right behind the op."""
    shapes = []
    for tensor in op.outputs:
        shape = tensor.shape
        for consumer in tensor.consumers():
            if consumer.type == "EnsureShape":
                shape = shape.merge_with(consumer.outputs[0].shape)
        shapes.append(shape)
    return shapes


def _order_jitted_calls(func_graph: Any) -> None:
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
