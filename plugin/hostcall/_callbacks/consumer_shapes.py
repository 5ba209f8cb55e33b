"""What the ops that take the results of script ops tell of their shapes.

Many programs say nothing of a result, and do with it what only one shape allows: they assign it to
a variable, or stack it with tensors of known shape. Where another shape would be an error of the
op that takes the result, the shape is as good as declared. It is checked when the program runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks import shape_demands
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.shape_demands import UNKNOWN, Taken
from hostcall._tf import function_defs, op_kinds, op_locations, script_op_graphs, token_registry
from hostcall._tf.types import FuncGraph, Operation


@dataclasses.dataclass
class _Demand:
    """What the ops that take a tensor want of it.

    Attributes:
      shape: its shape, as far as they tell.
      count: the number of its elements, where they tell.
      by: the first op that tells something.
    """

    shape: tf.TensorShape = UNKNOWN
    count: int | None = None
    by: Operation | None = None


# By the references of tensors.
_Demands = dict[Any, _Demand]


def note(func_graph: FuncGraph) -> None:
    """Notes it of the script ops in a graph that has been traced, on their specs."""
    _note(func_graph, {})


def _note(func_graph: FuncGraph, of_outputs: Mapping[int, _Demand]) -> None:
    """The same, where more is known of what becomes of the graph's outputs, by their numbers."""
    wanted = [
        (op, spec)
        for op in script_op_graphs.script_ops_of(func_graph)
        if (spec := _spec_of(op)) is not None and not _is_known(op, spec)
    ]
    branches = script_op_graphs.branches_with_script_ops(func_graph)
    ops = func_graph.get_operations() if wanted or branches else []
    if not ops or any(op.type in function_defs.FRAME_OPS for op in ops):
        return  # what is taken in the branches of TensorFlow 1 may never be taken
    outputs = enumerate(func_graph.outputs)
    demands = {output.ref(): of_outputs[i] for i, output in outputs if i in of_outputs}
    _add_demands(func_graph, ops, [*(op for op, _ in wanted), *branches], demands)
    for op, spec in wanted:
        results = op.outputs[: len(spec.outputs.dtypes)]
        found = [_completed(_demand_of(result, demands)) for result in results]
        spec.consumer_shapes = [one.shape for one in found]
        spec.element_counts = [one.count for one in found]
        spec.shape_reasons = [*filter(None, map(_reason, range(len(found)), results, found))]
    for op, bodies in branches.items():
        of_results = {i: _demand_of(result, demands) for i, result in enumerate(op.outputs)}
        for body in bodies:
            _note(body, of_results)


def _spec_of(op: Operation) -> CallbackSpec | None:
    entry = token_registry.find(op.get_attr("token").decode())
    return entry if isinstance(entry, CallbackSpec) else None


def _is_known(op: Operation, spec: CallbackSpec) -> bool:
    results = op.outputs[: len(spec.outputs.dtypes)]
    return all(result.shape.is_fully_defined() for result in results)


def _add_demands(
    func_graph: FuncGraph, ops: Sequence[Operation], sources: Sequence[Operation], demands: _Demands
) -> None:
    """Adds what is demanded of the tensors that `sources` lead to."""
    reached = _reached(sources)
    if not reached:
        return
    position = {op: i for i, op in enumerate(ops)}
    running = _running(func_graph, ops)
    # Each op after all that take its results.
    for op in sorted(reached, key=position.__getitem__, reverse=True):
        if op in running:
            results = [_demand_of(result, demands) for result in op.outputs]
            _add_demands_of(op, results, demands)


def _demand_of(tensor: tf.Tensor, demands: _Demands) -> _Demand:
    demand = demands.get(tensor.ref(), _Demand())
    with contextlib.suppress(ValueError):
        return dataclasses.replace(demand, shape=tensor.shape.merge_with(demand.shape))
    return _Demand(tensor.shape)  # the op that wants another will say so itself


def _add_demands_of(op: Operation, results: Sequence[_Demand], demands: _Demands) -> None:
    """Adds what an op that runs demands of the tensors that it takes."""
    shapes = [result.shape for result in results]
    for index, tensor in enumerate(op.inputs):
        taken = Taken(op, index, shapes)
        shape = shape_demands.shape_of(taken)
        count = results[0].count if shape_demands.keeps_shape(taken) else None
        if count is None:
            count = shape_demands.count_of(taken)
        if shape.rank is None and count is None:
            continue
        known = demands.setdefault(tensor.ref(), _Demand(by=op))
        with contextlib.suppress(ValueError):  # no shape will do
            known.shape = known.shape.merge_with(shape)
        if known.count is None:
            known.count = count


def _completed(demand: _Demand) -> _Demand:
    """With the one size that the number of elements tells."""
    sizes = None if demand.shape.rank is None else demand.shape.as_list()
    if demand.count is None or sizes is None or sizes.count(None) != 1:
        return demand
    others = tf.TensorShape([size for size in sizes if size is not None]).num_elements()
    if not others or demand.count % others:
        return demand
    sizes[sizes.index(None)] = demand.count // others
    return dataclasses.replace(demand, shape=tf.TensorShape(sizes))


def _reason(index: int, result: tf.Tensor, demand: _Demand) -> str:
    """Where the shape of a result comes from, for messages; "" where the user says it."""
    if demand.by is None or result.shape.is_fully_defined():
        return ""
    place = op_locations.of_op(demand.by)
    at = f" at {place}" if place else ""
    return (
        f"nothing declares the shape of its result {index}: op '{demand.by.name}' "
        f"({demand.by.type}){at} takes no other"
    )


def _reached(sources: Iterable[Operation]) -> set[Operation]:
    """The ops that may demand something of the results of others, or of what has their shape."""
    found: set[Operation] = set()
    pending = [result for op in sources for result in op.outputs]
    while pending:
        for op in pending.pop().consumers():
            if op not in found and shape_demands.concern(op):
                found.add(op)
                pending.extend(op.outputs)
    return found


def _running(func_graph: FuncGraph, ops: Iterable[Operation]) -> set[Operation]:
    """The ops that run whenever the function does."""
    found: set[Operation] = set()
    pending = [output.op for output in func_graph.outputs]
    pending += [*func_graph.control_outputs, *filter(_is_stateful, ops)]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending.extend(_before(op))
    return found


def _is_stateful(op: Operation) -> bool:
    definition = op_kinds.op_def_or_none(op.type)
    return definition is None or bool(definition.is_stateful)


def _before(op: Operation) -> Iterator[Operation]:
    yield from op.control_inputs
    for tensor in op.inputs:
        yield tensor.op
