"""Specs of calls for a whole batch: each argument and each result has one more axis, in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, ShapeFunction
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._callbacks.specs import BoundedSpec, Spec, merge, static_shape
from hostcall._callbacks.structures import Inputs, Outputs
from hostcall_runtime._mapped_calls import MappedFunction


def of_batch(
    spec: CallbackSpec, inputs: Inputs, level: int, divided: Sequence[bool] | None = None
) -> CallbackSpec:
    """The spec of one call for the elements of a batch.

    Args:
      spec: that of a call for one element.
      inputs: the arguments, in the structure of `spec.inputs`. The first axis of each is that of
        the batch, or has size 1 for an argument that is the same for all elements.
      level: tells the batch from others.
      divided: where the call is divided among the workers of the executor: which of the op's inputs
        are divided; the others each worker gets whole.
    """
    function, declaration = spec.function, spec.declaration
    if divided is not None:
        function, declaration = _divided(spec, divided), declaration.of_divided_call()
    outputs = Outputs(without_shapes(spec.outputs.structure), spec.outputs.strict)
    shapes = shapes_of_batch(spec.shape_function, spec.outputs.specs)
    batched: CallbackSpec
    if isinstance(spec, EagerSpec):
        batched = EagerSpec(function, inputs, outputs, shapes, (), spec.differentiable, spec.pure)
        batched.orders_wanted = spec.root.orders_wanted
        batched.gradient_wanted = spec.gradient_wanted
    else:
        batched = type(spec)(function, inputs, outputs, shapes)
    batched.op_name = spec.op_name
    batched.description = spec.description
    batched.copies_inputs = spec.copies_inputs
    batched.declaration = declaration
    batched.given_name = spec.given_name
    batched.timeout = spec.timeout
    batched.route = spec.route
    batched.levels = (level, *spec.levels)
    return batched


def _divided(spec: CallbackSpec, divided: Sequence[bool]) -> MappedFunction:
    function: Any = spec.function
    provider = spec.declaration.executor
    if provider is None:  # of an inner batch, which goes whole to the workers now
        assert isinstance(function, MappedFunction)
        function, provider = function.function, function.provider
    axes = tuple(spec.inputs.pack([0 if one else None for one in divided]))
    return MappedFunction(function, provider, axes, None, spec.description)


def without_shapes(structure: Any) -> Any:
    """The types of results without their shapes, which are those of one element."""
    if isinstance(structure, dict):
        return type(structure)((key, without_shapes(v)) for key, v in structure.items())
    if isinstance(structure, list | tuple):
        parts = [without_shapes(item) for item in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return structure.dtype if isinstance(structure, tf.TensorSpec | BoundedSpec) else structure


def shapes_of_batch(
    shapes: ShapeFunction | None, declared: Sequence[Spec | None]
) -> ShapeFunction | None:
    """The shape function of calls for a batch.

    Args:
      shapes: that of calls for one element, or None.
      declared: what else is known of the results for one element.
    """
    if shapes is None and not any(declared):
        return None

    def shape_function(specs: Sequence[Spec]) -> list[Spec | None]:
        known = list(declared)
        if shapes is not None:
            said = shapes([element_of(spec) for spec in specs])
            pairs = zip(said, known, strict=True)
            known = [other if one is None else merge(one, other) for one, other in pairs]
        size = size_of([static_shape(spec) for spec in specs])
        return [None if spec is None else led(spec, size) for spec in known]

    return shape_function


def element_of(spec: Spec) -> Spec:
    """The spec of one element of a batch."""
    if isinstance(spec, BoundedSpec):
        dynamic = [dim - 1 for dim in spec.dynamic_dims if dim > 0]
        return BoundedSpec(spec.shape[1:], spec.dtype, dynamic)
    return tf.TensorSpec(spec.shape[1:], spec.dtype)


def led(spec: Spec, size: int | None) -> Spec:
    """A spec with one more axis in front."""
    if not isinstance(spec, BoundedSpec):
        return tf.TensorSpec(tf.TensorShape([size]).concatenate(spec.shape), spec.dtype)
    if size is None:  # a bound for it is not known here
        return led(spec.tensor_spec(), size)
    return BoundedSpec([size, *spec.shape], spec.dtype, [dim + 1 for dim in spec.dynamic_dims])


def size_of(shapes: Sequence[tf.TensorShape]) -> int | None:
    """The size of the batch that such arguments have; None where it is not known."""
    sizes = [None if shape.rank is None else shape[0] for shape in shapes]
    known = [size for size in sizes if size is not None and size != 1]
    if known:
        return int(known[0])
    return None if None in sizes or not sizes else 1
