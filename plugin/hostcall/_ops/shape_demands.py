"""Shapes that the consumers of a result demand.

Many programs declare no shape for a result, but use it in a way that allows only one: they assign
it to a variable, or stack it with tensors of known shape. If the consumer would fail for any other
shape, that shape is as good as declared. It is checked when the program runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.structures import Spec, is_known
from hostcall._tf import autograph, script_op_graphs, token_registry
from hostcall._tf.graph import op_kinds
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FuncGraph, Operation

UNKNOWN = tf.TensorShape(None)

# Ops whose first result has the shape of their first input; they may have other inputs too.
ELEMENTWISE = op_kinds.UNARY | {
    *("Cast", "CheckNumerics", "CheckNumericsV2", "ComplexAbs", "Identity", "Neg", "OnesLike"),
    *("PreventGradient", "Snapshot", "StopGradient", "ZerosLike"),
}
_KEEP_SHAPE = ELEMENTWISE | {
    *("Cumprod", "Cumsum", "DebugIdentityV2", "EnsureShape", "LogSoftmax", "ReverseV2", "Roll"),
    "Softmax",
}

# Ops that write variables of known shape; they compare the shapes when they run.
_ASSIGNMENTS = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_OPTIMIZERS = "ResourceApply"
_STEPS = frozenset({"grad", "delta"})


class Taken(NamedTuple):
    """A tensor that an op of a graph takes."""

    op: Operation  # the op
    number: int  # the index of the op's input
    results: Sequence[tf.TensorShape]  # the shapes of the op's results


def concern(op: Operation) -> bool:
    """Return whether an op may demand a shape or a number of elements."""
    kind = op.type
    known = kind in _KEEP_SHAPE or kind in _RULES or kind in _ASSIGNMENTS
    return known or kind == "Reshape" or kind.startswith(_OPTIMIZERS)


def keeps_shape(taken: Taken) -> bool:
    """Return whether a tensor always has the shape of the op's first result."""
    return taken.number == 0 and taken.op.type in _KEEP_SHAPE


def shape_of(taken: Taken) -> tf.TensorShape:
    """Return the known part of the shape that an op demands of a tensor that it takes."""
    if keeps_shape(taken):
        return taken.results[0]
    rule = _RULES.get(taken.op.type)
    return _of_new_value(taken) if rule is None else rule(taken)


def count_of(taken: Taken) -> int | None:
    """Return the number of elements that the op demands, or None if it takes any."""
    if taken.op.type != "Reshape" or taken.number != 0:
        return None
    count: int | None = taken.results[0].num_elements()
    return count


def _of_new_value(taken: Taken) -> tf.TensorShape:
    """Return the shape of a value that updates a variable, or that an optimizer's step uses."""
    op, index = taken.op, taken.number
    if op.type in _ASSIGNMENTS and index == 1:
        if op.type != "AssignVariableOp" or op.get_attr("validate_shape"):
            return script_op_graphs.shape_of_variable(op.inputs[0])
    elif op.type.startswith(_OPTIMIZERS) and index > 0:
        arguments = op_kinds.op_def(op.type).input_arg
        if len(arguments) == len(op.inputs) and arguments[index].name in _STEPS:
            return script_op_graphs.shape_of_variable(op.inputs[0])
    return UNKNOWN


def _of_stacked(taken: Taken) -> tf.TensorShape:
    axis = taken.op.get_attr("axis")
    if not _has_axis(taken.results[0], axis):
        return UNKNOWN
    sizes = taken.results[0].as_list()
    del sizes[axis]
    return tf.TensorShape(sizes)


def _of_unstacked(taken: Taken) -> tf.TensorShape:
    merged = UNKNOWN
    for result in taken.results:
        if not merged.is_compatible_with(result):
            return UNKNOWN
        merged = merged.merge_with(result)
    if merged.rank is None:
        return UNKNOWN
    sizes = merged.as_list()
    axis = taken.op.get_attr("axis")
    sizes.insert(axis if axis >= 0 else len(sizes) + 1 + axis, len(taken.results))
    return tf.TensorShape(sizes)


def _of_joined(taken: Taken) -> tf.TensorShape:
    parts, axis = list(taken.op.inputs[:-1]), _constant(taken.op.inputs[-1])
    if axis is None or not _has_axis(taken.results[0], axis) or taken.number >= len(parts):
        return UNKNOWN
    del parts[taken.number]
    sizes = taken.results[0].as_list()
    for part in parts:
        size = part.shape[axis] if _has_axis(part.shape, axis) else None
        sizes[axis] = None if None in (size, sizes[axis]) else sizes[axis] - size
    return UNKNOWN if (sizes[axis] or 0) < 0 else tf.TensorShape(sizes)


def _of_gathered(taken: Taken) -> tf.TensorShape:
    """Return the shape of a gather's parameters or indices; the result has the sizes of both."""
    op, result = taken.op, taken.results[0]
    axis = _constant(op.inputs[2])
    if axis is None or op.get_attr("batch_dims") or result.rank is None or taken.number > 1:
        return UNKNOWN
    other = op.inputs[1 - taken.number].shape.rank
    if other is None:
        return UNKNOWN
    count = result.rank + 1 - other if taken.number == 1 else other  # the rank of the indices
    rank = result.rank + 1 - count  # the rank of the parameters
    if count < 0 or not -rank <= axis < rank:
        return UNKNOWN
    axis %= rank
    sizes = result.as_list()
    if taken.number == 1:
        return tf.TensorShape(sizes[axis : axis + count])
    return tf.TensorShape([*sizes[:axis], None, *sizes[axis + count :]])


def _of_loop_variable(taken: Taken) -> tf.TensorShape:
    """Return the shape invariant, which TensorFlow trusts unchecked, as it does `set_shape`."""
    invariants = taken.op.get_attr("output_shapes")
    return tf.TensorShape(invariants[taken.number]) if invariants else UNKNOWN


def _has_axis(shape: tf.TensorShape, axis: int) -> bool:
    """Return whether a shape has this dimension; after `set_shape` it may lack it."""
    return shape.rank is not None and -shape.rank <= axis < shape.rank


def _constant(tensor: tf.Tensor) -> int | None:
    value = tf.get_static_value(tensor)
    return None if value is None else int(value)


_RULES: dict[str, Callable[[Taken], tf.TensorShape]] = {
    "AddN": lambda taken: taken.results[0],
    "IdentityN": lambda taken: taken.results[taken.number],
    "Pack": _of_stacked,
    "Unpack": _of_unstacked,
    "ConcatV2": _of_joined,
    "GatherV2": _of_gathered,
    "While": _of_loop_variable,
    "StatelessWhile": _of_loop_variable,
}


@dataclasses.dataclass
class _Demand:
    """The demands of the ops that take a tensor."""

    shape: tf.TensorShape = UNKNOWN  # the known part of the demanded shape
    count: int | None = None  # the demanded number of elements, or None
    by: Operation | None = None  # the first op with a demand


_Demands = dict[Any, _Demand]  # the keys are references of tensors


def note(func_graph: FuncGraph, of_outputs: Sequence[_Demand] = ()) -> None:
    """Store the demands on the specs of the script ops in a traced graph."""
    # For a branch, `of_outputs` are the demands on its outputs. Where another branch alone has a
    # value for the gradient, TensorFlow puts a FakeParam, with the size 0 for each unknown one.
    wanted = [
        (op, spec)
        for op in script_op_graphs.script_ops_of(func_graph)
        if (spec := _spec_of(op)) is not None and not _is_known(op, spec)
    ]
    branches = script_op_graphs.branches_with_script_ops(func_graph)
    ops = func_graph.get_operations() if wanted or branches else []
    if not ops or any(op.type in op_kinds.FRAME_OPS for op in ops):
        return  # TensorFlow 1's control flow is inline: a consumer in a branch may never run
    outputs = zip(func_graph.outputs, of_outputs, strict=False)
    demands = {output.ref(): demand for output, demand in outputs}
    _add_demands(func_graph, ops, [*(op for op, _ in wanted), *branches], demands)
    for op, spec in wanted:
        results = op.outputs[: len(spec.outputs.dtypes)]
        found = [_completed(_demand_of(result, demands)) for result in results]
        spec.consumer_shapes = [one.shape for one in found]
        spec.element_counts = [one.count for one in found]
        reasons = map(_reason, range(len(found)), results, found, spec.static_specs)
        spec.shape_reasons = [*filter(None, reasons)]
    for op, bodies in branches.items():
        of_results = [_demand_of(result, demands) for result in op.outputs]
        for body in bodies:
            for index, output in enumerate(body.outputs):
                if output.op.type == "FakeParam":
                    of_results[index] = _Demand()
        for body in bodies:
            note(body, of_results)


def _spec_of(op: Operation) -> CallbackSpec | None:
    entry = token_registry.entry_of(op.get_attr("token").decode())
    return entry if isinstance(entry, CallbackSpec) else None


def _is_known(op: Operation, spec: CallbackSpec) -> bool:
    results = op.outputs[: len(spec.outputs.dtypes)]
    return all(result.shape.is_fully_defined() for result in results)


def _add_demands(
    func_graph: FuncGraph, ops: Sequence[Operation], sources: Sequence[Operation], demands: _Demands
) -> None:
    """Add the demands on the tensors that are reached from `sources`."""
    reached = _reached(sources)
    if not reached:
        return
    position = {op: i for i, op in enumerate(ops)}
    running = _running(func_graph, ops)
    # Consumers come first, so that their demands on an op's results are known.
    for op in sorted(reached, key=position.__getitem__, reverse=True):
        if op in running:
            results = [_demand_of(result, demands) for result in op.outputs]
            _add_demands_of(op, results, demands)


def _demand_of(tensor: tf.Tensor, demands: _Demands) -> _Demand:
    demand = demands.get(tensor.ref(), _Demand())
    with contextlib.suppress(ValueError):
        return dataclasses.replace(demand, shape=tensor.shape.merge_with(demand.shape))
    return _Demand(tensor.shape)  # the op with the contradicting demand will raise the error


def _add_demands_of(op: Operation, results: Sequence[_Demand], demands: _Demands) -> None:
    """Add the demands of an op that runs on the tensors that it takes."""
    shapes = [result.shape for result in results]
    for index, tensor in enumerate(op.inputs):
        taken = Taken(op, index, shapes)
        shape = shape_of(taken)
        count = results[0].count if keeps_shape(taken) else None
        if count is None:
            count = count_of(taken)
        if shape.rank is None and count is None:
            continue
        known = demands.setdefault(tensor.ref(), _Demand(by=op))
        with contextlib.suppress(ValueError):  # the demands contradict each other
            known.shape = known.shape.merge_with(shape)
        if known.count is None:
            known.count = count


def _completed(demand: _Demand) -> _Demand:
    """Complete a demand whose one unknown size follows from the number of elements."""
    sizes = None if demand.shape.rank is None else demand.shape.as_list()
    if demand.count is None or sizes is None or sizes.count(None) != 1:
        return demand
    others = tf.TensorShape([size for size in sizes if size is not None]).num_elements()
    if not others or demand.count % others:
        return demand
    sizes[sizes.index(None)] = demand.count // others
    return dataclasses.replace(demand, shape=tf.TensorShape(sizes))


def _reason(index: int, result: tf.Tensor, demand: _Demand, declared: Spec) -> str:
    """Return the origin of a result's shape for messages, or "" if the user declares it."""
    if demand.by is None or result.shape.is_fully_defined() or is_known(declared):
        return ""
    place = autograph.place_of(demand.by)
    at = f" at {place}" if place else ""
    return (
        f"nothing declares the shape of its result {index}: op '{demand.by.name}' "
        f"({demand.by.type}){at} takes no other"
    )


def _reached(sources: Iterable[Operation]) -> set[Operation]:
    """Return the ops that may have demands on the sources' results, directly or through others."""

    def users(op: Operation) -> Iterator[Operation]:
        return (user for result in op.outputs for user in result.consumers() if concern(user))

    return set(reach(itertools.chain.from_iterable(map(users, sources)), users))


def _running(func_graph: FuncGraph, ops: Iterable[Operation]) -> set[Operation]:
    """Return the ops that run whenever the function does."""
    starts = [output.op for output in func_graph.outputs]
    starts += [*func_graph.control_outputs, *filter(_is_stateful, ops)]
    return set(reach(starts, lambda op: [*op.control_inputs, *(t.op for t in op.inputs)]))


def _is_stateful(op: Operation) -> bool:
    definition = op_kinds.op_def_or_none(op.type)
    return definition is None or bool(definition.is_stateful)
