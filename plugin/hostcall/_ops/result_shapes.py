"""The shapes of results at compile time, from all sources in their order of precedence.

A source is the declared shape function, `Tout`, tracing, or `set_shape`. `set_shape` changes the
graph's tensor and not the op, so a FunctionDef does not hold it: `store` saves it on the op.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._functions import source_location
from hostcall._functions.options import TRACE, Options
from hostcall._functions.specs import ask as ask_user
from hostcall._ops import advice, requested_routes, result_contract
from hostcall._ops.callback_spec import CallbackSpec, ShapeFunction
from hostcall._ops.structures import (
    BoundedSpec,
    Inputs,
    Outputs,
    Spec,
    as_spec,
    is_known,
    is_leaf,
    is_shape,
    is_shape_function,
    merge,
    static_shape,
)
from hostcall._tf.graph import attributes, protos
from hostcall._tf.types import NodeDef, Operation
from hostcall_runtime import _trees
from hostcall_runtime._errors import LoweringError, NotInProgramError

# The reductions of bounded sizes for repeated calls of a shape function; the last empties operands.
_LESS = (1, 2, 2**62)

_AROUND = "With route='{}' the function is partitioned around the call."
_ROUTES = re.compile(_AROUND.format(r"\w+"))


def ask(shape_function: ShapeFunction, operands: Sequence[Spec]) -> Sequence[Spec | None]:
    """Call a shape function, and bound each result size that follows a bounded operand size."""
    # Many shape functions return `tf.TensorSpec(x.shape, x.dtype)` even for a bounded `x`. So the
    # function is called again with smaller operands. A size that changes then is only a bound.
    said = shape_function(operands)
    if not any(isinstance(operand, BoundedSpec) for operand in operands):
        return said
    answers = [*_answers_for_less(shape_function, operands)]
    return [_bounded(spec, [other[i] for other in answers]) for i, spec in enumerate(said)]


def _answers_for_less(
    shape_function: ShapeFunction, operands: Sequence[Spec]
) -> Iterator[Sequence[Spec | None]]:
    for less in _LESS:
        with contextlib.suppress(Exception):  # the function may fail for sizes that are too small
            yield shape_function([_made_smaller(operand, less) for operand in operands])


def _made_smaller(operand: Spec, less: int) -> Spec:
    if not isinstance(operand, BoundedSpec):
        return operand
    sizes = [
        max(bound - less, 0) if dim in operand.dynamic_dims else bound
        for dim, bound in enumerate(operand.shape.as_list())
    ]
    return BoundedSpec(sizes, operand.dtype, operand.dynamic_dims)


def _bounded(said: Spec | None, for_less: Sequence[Spec | None]) -> Spec | None:
    """Return the spec with a bound for each size that differs in one of the other answers."""
    if said is None or said.shape.rank is None:
        return said
    known = [spec.shape.as_list() for spec in for_less if spec is not None and spec.shape.rank]
    sizes = [*said.shape.as_list()]
    others = [shape for shape in known if len(shape) == len(sizes)]
    dynamic = {*said.dynamic_dims} if isinstance(said, BoundedSpec) else set()
    for dim, size in enumerate(sizes):
        found = {size, *(shape[dim] for shape in others)}
        if None not in found and len(found) > 1:
            sizes[dim] = max(found)
            dynamic.add(dim)
    return BoundedSpec(sizes, tf.as_dtype(said.dtype), sorted(dynamic)) if dynamic else said


# Shape functions that trace the user's function.
_tracing_shape_functions: weakref.WeakSet[ShapeFunction] = weakref.WeakSet()


def make_shape_function(
    options: Options, function: Callable[..., Any], inputs: Inputs, outputs: Outputs
) -> ShapeFunction | None:
    """Make the shape function of a declaration, or None if it declares no result."""
    if options.result is None:
        return None
    traced: dict[tuple[Any, ...], list[Spec | None]] = {}
    traces = isinstance(options.result, str) and options.result == TRACE

    def shape_function(specs: Sequence[Spec]) -> list[Spec | None]:
        result = options.result
        if traces:
            shapes = tuple(str(static_shape(spec)) for spec in specs)
            if shapes not in traced:
                traced[shapes] = trace(function, inputs, outputs, specs)
            return traced[shapes]
        if is_shape_function(result):
            result = ask_user(result, inputs.pack_specs(specs), function)
        return flatten_result(result, outputs.dtypes)

    if traces:
        _tracing_shape_functions.add(shape_function)
    return shape_function


def flatten_result(result: object, dtypes: Sequence[tf.DType]) -> list[Spec | None]:
    """Return the spec of each result; raise a ValueError for another number or dtype."""
    none = isinstance(result, list | tuple) and not result and not dtypes
    leaves = [] if none else _trees.leaves(result, lambda part: is_leaf(part) or is_shape(part))
    if len(leaves) != len(dtypes):
        raise ValueError(f"{len(leaves)} results are declared, but Tout has {len(dtypes)}.")
    specs = [as_spec(leaf, dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
    for index, (spec, dtype) in enumerate(zip(specs, dtypes, strict=True)):
        if spec.dtype != dtype:
            raise ValueError(
                f"result {index} is declared as {spec.dtype.name}, but Tout says {dtype.name}."
            )
    return list(specs)


def trace(
    function: Callable[..., Any], inputs: Inputs, outputs: Outputs, specs: Sequence[Spec]
) -> list[Spec | None]:
    """Trace `function` with symbolic tensors, and return the specs of its results."""
    with tf.Graph().as_default():
        symbols = [tf.compat.v1.placeholder(spec.dtype, static_shape(spec)) for spec in specs]
        values = outputs.flatten(function(*inputs.pack(symbols)), function)
        pairs = zip(values, outputs.dtypes, strict=True)
        tensors = [tf.convert_to_tensor(value, dtype) for value, dtype in pairs]
        return [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]


def pending(spec: CallbackSpec, operands: Sequence[tf.TensorSpec]) -> list[bool]:
    """Return for each result whether its shape function determines it only when XLA compiles."""
    count = len(spec.outputs.dtypes)
    if spec.shape_function is None or all(operand.shape.is_fully_defined() for operand in operands):
        return [False] * count
    if spec.shape_function in _tracing_shape_functions:
        return [True] * count
    # The placeholder sizes and ranks only show whether the function returns full shapes for them.
    for rank in (1, 2, 3, 4, 0):
        made_up = [_made_up(operand, rank) for operand in operands]
        with contextlib.suppress(Exception):  # the function may reject some of the ranks
            return [said is not None and is_known(said) for said in spec.shape_function(made_up)]
    return [True] * count


def _made_up(operand: tf.TensorSpec, rank: int) -> tf.TensorSpec:
    """Return `operand` with a placeholder size in the place of each unknown one."""
    sizes = [None] * rank if operand.shape.rank is None else operand.shape.as_list()
    return tf.TensorSpec([2 if size is None else size for size in sizes], operand.dtype)


def resolve(spec: CallbackSpec, node: NodeDef, operands: Sequence[Spec]) -> list[Spec]:
    """Return specs of all results, with all sizes or bounds known; else raise a LoweringError."""
    resolved = result_contract.with_vectors(
        demanded(spec, node, operands), result_contract.shape_agnostic_of(node)
    )
    for index, said in enumerate(resolved):
        if not is_known(said):
            raise _unknown_shape(spec, node, index, resolved)
    return resolved


def known(spec: CallbackSpec, node: NodeDef | None, operands: Sequence[Spec]) -> list[Spec]:
    """Return the known spec of each of the user's results."""
    # The sources, in this order: the shape function (declared by the user, or made for a gradient
    # call), the specs in `Tout`, the shapes from tracing. A later one completes an earlier one. A
    # LoweringError tells that two contradict each other.
    sources: list[tuple[str, Sequence[Spec | None]]] = [
        ("the declared shape function", _apply_shape_function(spec, operands)),
        ("Tout", spec.outputs.specs),
        ("tracing", spec.static_specs),
        ("set_shape or ensure_shape", _traced_specs(spec, node)),
    ]
    given = [(who, specs) for who, specs in sources if specs]
    return [
        _merge(spec, index, [(who, specs[index]) for who, specs in given])
        for index in range(len(spec.outputs.dtypes))
    ]


def demanded(spec: CallbackSpec, node: NodeDef | None, operands: Sequence[Spec]) -> list[Spec]:
    """Return the known specs, completed by the shapes that the consumers demand."""
    said_of = known(spec, node, operands)
    return [with_consumers(spec, index, said) for index, said in enumerate(said_of)]


def with_consumers(spec: CallbackSpec, index: int, said: Spec) -> Spec:
    """Complete the spec of a result by its consumers' demands, unless they contradict it."""
    if not spec.consumer_shapes:
        return said
    with contextlib.suppress(ValueError):
        return merge(said, tf.TensorSpec(spec.consumer_shapes[index], said.dtype))
    return said


def _apply_shape_function(spec: CallbackSpec, operands: Sequence[Spec]) -> Sequence[Spec | None]:
    if spec.shape_function is None:
        return []
    try:
        return ask(spec.shape_function, operands)
    except Exception as error:
        inputs = ", ".join(str(operand) for operand in operands) or "(none)"
        rule = spec.options.result
        of = f" of {source_location.of_function(rule)}" if is_shape_function(rule) else ""
        raise LoweringError(
            f"hostcall: the declared result{of} does not fit {spec.description}.\n"
            f"For inputs {inputs} it raises\n    {type(error).__name__}: {error}"
        ) from error


def _traced_specs(spec: CallbackSpec, node: NodeDef | None) -> list[Spec | None]:
    """Return the specs after tracing: from the op, or from the node if the op's graph is gone."""
    op = spec.op() if spec.op is not None else None
    if op is not None:
        shapes = _shapes_of(op)
    elif node is not None:
        shapes = traced(node)
    else:
        return []
    # zip leaves out the hidden result of a py_function.
    return [
        tf.TensorSpec(shape, dtype)
        for shape, dtype in zip(shapes, spec.outputs.dtypes, strict=False)
    ]


def _merge(spec: CallbackSpec, index: int, said: Sequence[tuple[str, Spec | None]]) -> Spec:
    merged: Spec = tf.TensorSpec(None, spec.outputs.dtypes[index])
    for who, source in said:
        try:
            merged = merge(merged, source)
        except ValueError as error:
            raise LoweringError(
                f"hostcall: result {index} of {spec.description} is declared twice, and not the "
                f"same: {who} says {source and static_shape(source)}, and what comes before it "
                f"{static_shape(merged)}. Correct one of them."
            ) from error
    return merged


def _unknown_shape(
    spec: CallbackSpec, node: NodeDef, index: int, known: Sequence[Spec]
) -> Exception:
    asked_for = requested_routes.asked(node) == requested_routes.CUSTOM_CALL
    asked = requested_routes.AUTO if asked_for else requested_routes.PARTITION
    error = LoweringError if asked_for else NotInProgramError
    return error(
        f"hostcall: nothing tells the shape of result {index} of {spec.description}"
        f"{advice.what_is_known(known[index])}, and XLA needs every size.\n"
        + advice.in_lines(
            spec,
            known,
            "hostcall.BoundedSpec(shape, dtype, dynamic_dims) declares upper bounds.",
            _AROUND.format(asked),
        )
    )


def without_routes(message: str) -> str:
    """Return an error of an unknown shape for a function that no route may partition."""
    return _ROUTES.sub("What is exported is one program, whatever the route.", message)


def store(op: Operation) -> None:
    """Store the shapes of a script op's results on the op, once its graph is traced."""
    shapes = [shape.as_proto() for shape in _shapes_of(op)]
    protos.set_attr(op, attributes.SHAPES, list=protos.list_value(shape=shapes))


def _shapes_of(op: Operation) -> list[tf.TensorShape]:
    """Return the shapes of an op's results, with those of `tf.ensure_shape` right behind the op."""
    shapes = []
    for tensor in op.outputs:
        shape = tensor.shape
        for consumer in tensor.consumers():
            if consumer.type == "EnsureShape":
                shape = shape.merge_with(consumer.outputs[0].shape)
        shapes.append(shape)
    return shapes


def traced(node: NodeDef) -> list[tf.TensorShape]:
    """Return the shapes that `store` has saved on a NodeDef, or [] if it was not called."""
    if attributes.SHAPES not in node.attr:
        return []
    return [tf.TensorShape(shape) for shape in node.attr[attributes.SHAPES].list.shape]
