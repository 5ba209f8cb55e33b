"""Conversion of script ops in vectorized loops to calls for the whole batch: `vmap_method=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import tensorflow as tf

from hostcall._functions.options import BROADCAST_ALL, MAP, OF_BATCHES
from hostcall._ops import array_specs, lookup, tape_residuals
from hostcall._ops.callback_spec import CallbackSpec, EagerSpec
from hostcall._ops.emit import gradients, script_ops
from hostcall._ops.emit.gradients import DerivedSpec, GradientSpec, RecomputingSpec
from hostcall._ops.structures import Inputs, Outputs, Spec, static_shape
from hostcall._tf import autograph, eager_execution, parallel_for, script_op_graphs
from hostcall._tf.graph import op_kinds
from hostcall._tf.parallel_for import Converted, MappedOp
from hostcall._tf.types import Operation

_LOOPS = (
    "hostcall: {description} is called once for each element of the batch, one after another. If "
    "the function can take the whole batch, say so: hostcall.declare(function, "
    'vmap_method="expand_dims"). Each argument and each result has one more axis then, in front. '
    'vmap_method="sequential" is what happens now, without this message.'
)
_COMPOSITE = (
    "hostcall: vmap_method={method!r} of {description}: a ragged or sparse tensor has no axis for "
    'the batch. Write vmap_method="sequential".'
)
_BAD_RESULT = (
    "hostcall: vmap_method={method!r} has the function called for a whole batch, and result "
    "{index} does not have one more axis in front, of the size of the batch. Correct the function, "
    'or write vmap_method="sequential". This is {description}. The size of the batch and the '
    "shape of the result are:"
)

# An Operation stands for an op without results.
_Results: TypeAlias = Sequence[Converted] | Operation


def has_effect(op: Operation) -> bool:
    """Return whether a stateful op has side effects other than those of computing gradients."""
    if op.type not in op_kinds.SCRIPT_OPS:
        return True
    return not isinstance(lookup.own_spec_of(op.node_def), DerivedSpec)


def convert(mapped: MappedOp) -> _Results:
    """Convert a script op to one call for the batch, or to a loop."""
    spec = lookup.own_spec_of(mapped.op.node_def)
    if spec is None:
        raise parallel_for.refusal("the function was given to TensorFlow without hostcall.")
    if isinstance(spec, GradientSpec):
        return _gradient(mapped, spec)
    if isinstance(spec, RecomputingSpec):
        return _recomputed(mapped, spec)
    declared = spec.options
    if not mapped.is_stacked and (declared.pure or declared.table is not None):
        return _unstacked(mapped, spec)
    # An impure function may return another result for each element, even for equal arguments.
    if declared.vmap_method in OF_BATCHES and mapped.is_stacked:
        return _for_batch(mapped, spec)
    if declared.vmap_method is None:
        text = _LOOPS.format(description=spec.description)
        if not mapped.may_loop:
            raise parallel_for.refusal(text)
        if mapped.warns:
            tf.get_logger().warning(text)
    return _one_by_one(mapped, spec)


def _for_batch(mapped: MappedOp, spec: CallbackSpec) -> _Results:
    """Emit one call for the batch."""
    method = spec.options.vmap_method
    if spec.inputs.composite or spec.outputs.composite:
        raise ValueError(_COMPOSITE.format(method=method, description=spec.description))
    # Each element has its own gradient, even for an argument that all elements share.
    recorded = isinstance(spec, EagerSpec) and spec.gradient_wanted
    tensors = [
        mapped.stacked(i)
        if method == BROADCAST_ALL or (recorded and eager_execution.is_trainable(tensor))
        else mapped.led(i)
        for i, (tensor, _) in enumerate(mapped.inputs)
    ]
    inputs = spec.inputs.with_tensors(tensors)
    divided = [stacked for _, stacked in mapped.inputs] if method == MAP else None
    grad = None
    if spec.user.grad is not None:
        expands = method != BROADCAST_ALL and not recorded
        shared = [expands and not stacked for _, stacked in mapped.inputs]
        grad = _gradient_of_batch(spec, shared)
    batched = array_specs.make_batched_spec(spec, inputs, mapped.loop, divided, grad)
    name = mapped.op.name.rpartition("/")[2]

    def emit(*_: Any) -> object:
        return script_ops.emit(batched, _is_stateful(mapped), name)

    results = _with_gradient(batched, inputs, batched.outputs, emit)
    if _is_op(results):
        return results
    results = _checked(results, batched, mapped)
    return [*(Converted(result, True) for result in results), *_handle(batched)]


def _is_stateful(mapped: MappedOp) -> bool:
    return mapped.op.type in op_kinds.STATEFUL_SCRIPT_OPS


def _is_op(results: object) -> TypeGuard[Operation]:
    return isinstance(results, tf.Operation)


def _handle(spec: CallbackSpec) -> list[Converted]:
    """Return the hidden result of the op that was created just now: one for the batch."""
    op = None if spec.op is None else spec.op()
    if op is None or not isinstance(spec, EagerSpec) or not spec.differentiable:
        return []
    return [Converted(op.outputs[-1], False)]


def _with_gradient(
    spec: CallbackSpec, inputs: Inputs, outputs: Outputs, emit: Any
) -> script_ops.Emitted:
    """Return the results of `emit`, flat, with the user's gradient of the function."""
    if spec.user.grad is None or not outputs.dtypes:
        packed = emit(inputs, outputs)
    else:
        packed = gradients.with_gradient(emit, spec.user.grad, inputs, outputs)
    return packed if _is_op(packed) else outputs.unpack(packed)


def _checked(results: list[Any], spec: CallbackSpec, mapped: MappedOp) -> list[Any]:
    """Add checks of the batch size to the results in plain graphs; elsewhere the call checks it."""
    checked = []
    for index, (result, known) in enumerate(zip(results, spec.plain_specs, strict=True)):
        if known.shape.rank is None or known.shape[0] is None:
            size = tf.concat([tf.shape(result), [-1]], 0)[0]
            text = _BAD_RESULT.format(
                method=spec.options.vmap_method, index=index, description=spec.description
            )
            right = tf.equal(size, tf.cast(mapped.length[0], size.dtype))
            check = tf.debugging.Assert(right, [text, mapped.length, tf.shape(result)])
            with tf.control_dependencies([check] if check is not None else []):
                result = tf.identity(result)
        checked.append(result)
    return checked


def _unstacked(mapped: MappedOp, spec: CallbackSpec) -> _Results:
    """Emit one call that is the same for all elements."""
    results = _again(mapped.op, spec, [tensor for tensor, _ in mapped.inputs])
    return results if _is_op(results) else [Converted(result, False) for result in results]


def _one_by_one(mapped: MappedOp, spec: CallbackSpec) -> _Results:
    """Emit a loop with one call for each element, in their order if the op has side effects."""
    op = mapped.op
    places = [i for i, converted in enumerate(mapped.inputs) if converted.stacked]
    same = [tensor for tensor, _ in mapped.inputs]
    signature = [tf.TensorSpec(output.shape, output.dtype) for output in op.outputs]

    @autograph.do_not_convert
    def one(elements: Sequence[Any]) -> list[tf.Tensor]:
        inputs = list(same)
        for place, element in zip(places, elements, strict=False):
            inputs[place] = element
        results = _again(op, spec, inputs)
        return [tf.constant(0)] if _is_op(results) else results

    results = tf.map_fn(
        one,
        [same[i] for i in places] or [tf.range(mapped.length[0])],
        fn_output_signature=signature or [tf.TensorSpec([], tf.int32)],
        parallel_iterations=1 if _is_stateful(mapped) else None,
    )
    if not op.outputs:
        group: Operation = tf.group(*results)
        return group
    return [Converted(result, True) for result in results]


def _again(op: Operation, spec: CallbackSpec, tensors: Sequence[Any]) -> script_ops.Emitted:
    """Create an op like `op` with other inputs; return its outputs, or the op if it has none."""
    hidden: list[Any] = []

    def emit(inputs: Inputs, outputs: Outputs) -> object:
        script_op_graphs.own(spec)
        created = op_kinds.script_op_like(op, inputs.flat)
        script_ops.mark_op(created, spec)
        for output, like in zip(created.outputs, op.outputs, strict=True):
            output.set_shape(like.shape)
        visible = len(outputs.dtypes)
        hidden.extend(created.outputs[visible:])
        return outputs.pack(created.outputs[:visible]) if created.outputs else created

    results = _with_gradient(spec, spec.inputs.with_tensors(tensors), spec.outputs, emit)
    return results if _is_op(results) else [*results, *hidden]


def _gradient(mapped: MappedOp, spec: GradientSpec) -> _Results:
    """Convert the gradient op of a py_function, if possible to one call for all elements."""
    handle, has_handles = mapped.inputs[0]
    of_batch = not has_handles and _is_of_batch(handle, mapped.loop)
    if not of_batch and not mapped.is_stacked:
        return _unstacked(mapped, spec)
    if not of_batch and spec.gradient_wanted:
        return _one_by_one(mapped, spec)  # each call has its own next derivative
    first = 1 + len(spec.targets)
    before = spec if isinstance(spec, GradientOfBatch) else None
    handles_before = 0 if before is None else before.handle_axes
    inputs = [mapped.stacked(0) if handles_before else handle]
    inputs += [mapped.stacked(i) for i in range(1, first)]
    axes = [0] * len(spec.sources) if before is None else list(before.axes)
    for place in range(len(axes)):
        tensor, stacked = mapped.inputs[first + place]
        axes[place] += stacked or of_batch
        inputs.append(mapped.stacked(first + place) if of_batch else tensor)
    handle_axes = handles_before + 1 if has_handles or handles_before else 0
    levels = (mapped.loop, *spec.levels)
    return _emitted(GradientOfBatch(spec, inputs, levels, axes, handle_axes))


def _is_of_batch(handle: Any, loop: int) -> bool:
    """Return whether the call with this handle is one for all elements of a loop."""
    op = handle.op
    if op.type != op_kinds.EAGER_PY_FUNC:
        return False
    spec = lookup.own_spec_of(op.node_def)
    return spec is not None and loop in spec.levels


def _recomputed(mapped: MappedOp, spec: RecomputingSpec) -> _Results:
    """Convert the gradient op of a pure function, which calls the function again."""
    if not mapped.is_stacked:
        return _unstacked(mapped, spec)
    method = spec.parent.options.vmap_method
    count = len(mapped.inputs) - len(spec.targets)
    looped = [place + 1 for place in getattr(spec, "looped", ())]
    stacks_arguments = any(converted.stacked for converted in mapped.inputs[:count])
    if not stacks_arguments:
        arguments = [tensor for tensor, _ in mapped.inputs[:count]]
        looped = [0, *looped]
    elif method in OF_BATCHES:
        whole = {*range(count)} if method == BROADCAST_ALL else {*spec.sources}
        arguments = [mapped.stacked(i) if i in whole else mapped.led(i) for i in range(count)]
    else:
        return _one_by_one(mapped, spec)
    upstream = [mapped.stacked(i) for i in range(count, len(mapped.inputs))]
    levels = (mapped.loop, *spec.levels)
    return _emitted(RecomputingOfBatch(spec, [*arguments, *upstream], levels, looped))


def _emitted(spec: EagerSpec) -> list[Converted]:
    results = script_ops.emit_eager(spec, "EagerPyFunc_gradient")
    for result, known in zip(results, spec.static_specs, strict=True):
        result.set_shape(known.shape)
    return [*(Converted(result, True) for result in results), *_handle(spec)]


def _gradient_of_batch(spec: CallbackSpec, shared: Sequence[bool]) -> Callable[..., list[Any]]:
    """Map `spec.user.grad` over a batch, which is the first axis of each argument."""
    # `shared` says for each input of the op whether that axis has size 1, because the argument is
    # the same for all elements.
    grad, inputs, outputs = spec.user.grad, spec.inputs, spec.outputs
    assert grad is not None

    def gradient(arguments: Any, results: object, upstream: Any) -> list[Any]:
        places: list[int] = []

        def one(element: Any) -> list[Any]:
            tensors, called, dy = element
            given = grad(tuple(inputs.pack(tensors)), outputs.pack(called), outputs.pack(dy))
            found = inputs.flatten_gradients(given)
            gradients.check_gradients(found, tensors, grad)
            places[:] = [i for i, one in enumerate(found) if one is not None]
            return [tf.convert_to_tensor(found[i], tensors[i].dtype) for i in places]

        flat = tf.nest.flatten(list(arguments), expand_composites=True)
        elements = (flat, outputs.unpack(results), outputs.unpack(upstream))
        mapped = tf.vectorized_map(one, elements, warn=False)
        whole: list[Any] = [None] * len(flat)
        for place, value in zip(places, mapped, strict=True):
            # The gradient of a shared argument is the sum over all elements.
            whole[place] = tf.reduce_sum(value, 0, keepdims=True) if shared[place] else value
        return list(inputs.pack(whole))

    return gradient


_SEVERAL = (
    "A higher derivative of a Python function was asked for, of the gradients of a batch that is "
    "made in a branch or a loop: {description}. Take the branch or the loop out of the function "
    "that is mapped, or map it with tf.map_fn."
)


class GradientOfBatch(GradientSpec):
    """The derivatives of a call for a batch of upstream gradients."""

    # The forward call covered all elements, with one handle, or there was a call with a handle for
    # each element. The handles lead to the tape residuals.

    def __init__(
        self,
        of: GradientSpec,
        inputs: Sequence[Any],
        levels: Sequence[int],
        axes: Sequence[int],
        handle_axes: int,
    ) -> None:
        first = 1 + len(of.targets)
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
        super().__init__(of.parent, inputs, of.targets, of.sources, specs[first:])
        self.levels = tuple(levels)
        # For each source, the number of batches that are first axes of its tensor.
        self.axes = list(axes)
        # The number of batches that are axes of the handle; they are the outermost ones.
        self.handle_axes = handle_axes
        self.gradient_wanted = of.gradient_wanted
        self.like = None
        depth, axes = len(self.levels), self.axes  # the shape function must not hold the spec
        self.shape_function = lambda given: _led(given[1], depth, given[first:], axes)
        self.static_specs = self.shape_function(specs)

    def _run(
        self, tensors: Sequence[Any], record: bool, arrays: Sequence[Any] = ()
    ) -> tuple[list[Any], tape_residuals.TapeResidual | None]:
        handles = np.asarray(tensors[0])
        upstream = list(tensors[1 : 1 + len(self.targets)])
        if not handles.size:
            return self._of_none(upstream), None
        taken = {(0,) * handles.ndim: self.residual_of(int(handles.flat[0]))}
        one = next(iter(taken.values()))
        looped = [k for k, level in enumerate(self.levels) if level not in one.spec.levels]
        several = any(k < handles.ndim for k in looped)
        if several and record:
            raise RuntimeError(_SEVERAL.format(description=self.description))

        def gradients(at: Sequence[int], parts: list[Any]) -> list[Any]:
            place = tuple(at[: handles.ndim])
            if place not in taken:
                taken[place] = self.residual_of(int(handles[place]))
            return self.gradients_by(taken[place], parts)

        covered = len(self.levels) - len(looped)
        shapes = [source.shape[covered:] for source in self.sources_of(one)]
        with self.recording(one.tapes[1:] if record else (), upstream):
            results = over_axes(gradients, upstream, looped, len(self.levels), shapes)
        return results, self.kept(one, upstream, results) if record else None

    def _of_none(self, upstream: list[Any]) -> list[Any]:
        """Return the gradients of a batch without elements, for which no call was recorded."""
        lead = upstream[0].shape[: len(self.levels)].as_list()
        shapes = [static_shape(spec)[len(self.levels) :] for spec in self.static_specs]
        known = [[0 if size is None else size for size in shape] for shape in shapes]
        pairs = zip(known, self.outputs.dtypes, strict=True)
        return [tf.zeros([*lead, *shape], dtype) for shape, dtype in pairs]


class RecomputingOfBatch(RecomputingSpec):
    """The gradient of a pure function for a batch of upstream gradients."""

    def __init__(
        self,
        of: RecomputingSpec,
        inputs: Sequence[Any],
        levels: Sequence[int],
        looped: Sequence[int],
    ) -> None:
        depth, axes = len(levels), len(levels) - len(looped)
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
        sources, count = of.sources, len(of.targets)
        super().__init__(of.parent, inputs, of.targets, sources, [specs[i] for i in sources])

        def derive(tape: Any, results: list[Any], found: list[Any], dy: list[Any]) -> list[Any]:
            def of_part(_: object, part: list[Any]) -> list[Any]:
                return gradients.gradients_of(tape, results, found, part)

            shapes = [source.shape[axes:] for source in found]
            return over_axes(of_part, dy, looped, depth, shapes)

        self._call = gradients.recomputing(of.parent, of.targets, sources, derive, persistent=True)
        # The function runs once for all elements of the batches `looped`, which are not axes.
        self.levels, self.looped, self.like = tuple(levels), tuple(looped), None
        self.gradient_wanted = of.gradient_wanted
        self.shape_function = lambda given: _led(
            given[-count], depth, [given[i] for i in sources], [axes] * len(sources)
        )
        self.static_specs = self.shape_function(specs)


def over_axes(
    gradients: Callable[[Sequence[int], list[Any]], list[Any]],
    upstream: list[Any],
    looped: Sequence[int],
    depth: int,
    shapes: Sequence[tf.TensorShape],
) -> list[Any]:
    """Compute the gradients for all elements of the batches."""
    # `gradients` takes an index into all batches, 0 in those that are not `looped`, and the
    # upstream gradients there. The first axes of `upstream` are the `depth` batches. The shapes are
    # those of the gradients for one element.
    if not looped:
        return gradients([0] * depth, upstream)
    lead = upstream[0].shape[:depth].as_list()
    columns: list[list[Any]] = [[] for _ in shapes]
    for index in np.ndindex(*(lead[k] for k in looped)):
        place = dict(zip(looped, index, strict=True))
        at = tuple(place.get(k, slice(None)) for k in range(depth))
        parts = gradients([place.get(k, 0) for k in range(depth)], [dy[at] for dy in upstream])
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    # The stack has the looped batches as its first axes, then the others.
    order = [*looped, *(k for k in range(depth) if k not in looped)]
    sizes = [lead[k] for k in order]
    results = []
    for column, shape in zip(columns, shapes, strict=True):
        dtype = column[0].dtype if column else upstream[0].dtype
        stack = tf.stack(column) if column else tf.zeros(0, dtype)
        whole = tf.reshape(stack, [*sizes, *shape])
        axes = [order.index(k) for k in range(depth)] + [*range(depth, depth + len(shape))]
        results.append(whole if axes == sorted(axes) else tf.transpose(whole, axes))
    return results


def _led(upstream: Spec, depth: int, sources: Sequence[Spec], axes: Sequence[int]) -> list[Spec]:
    """Return the specs of gradients: the upstream's batch axes, then the shape of one element."""
    lead = static_shape(upstream)[:depth]
    pairs = zip(sources, axes, strict=True)
    return [
        tf.TensorSpec(lead.concatenate(static_shape(source)[count:]), source.dtype)
        for source, count in pairs
    ]
