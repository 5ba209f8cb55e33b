"""Gradients of callbacks for a whole batch of upstream gradients, by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import tape_residuals
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.structures import Spec, static_shape
from hostcall._frontend import gradients as frontend_gradients
from hostcall._frontend.gradients import (
    GradientSpec,
    RecomputingSpec,
    gradients_of,
    recomputing,
)


def of_batch(spec: CallbackSpec, shared: Sequence[bool]) -> Callable[..., list[Any]]:
    """Map `spec.user.grad` over a batch, which is the first axis of each argument.

    `shared` tells of each input of the op whether that axis has size 1, because the argument is the
    same for all elements.
    """
    grad, inputs, outputs = spec.user.grad, spec.inputs, spec.outputs
    assert grad is not None

    def gradient(arguments: Any, results: Any, upstream: Any) -> list[Any]:
        places: list[int] = []

        def one(element: Any) -> list[Any]:
            tensors, called, dy = element
            given = grad(tuple(inputs.pack(tensors)), outputs.pack(called), outputs.pack(dy))
            gradients = inputs.flatten_gradients(given)
            frontend_gradients.check(gradients, tensors, grad)
            places[:] = [i for i, one in enumerate(gradients) if one is not None]
            return [tf.convert_to_tensor(gradients[i], tensors[i].dtype) for i in places]

        flat = tf.nest.flatten(list(arguments), expand_composites=True)
        elements = (flat, outputs.unpack(results), outputs.unpack(upstream))
        mapped = tf.vectorized_map(one, elements, warn=False)
        gradients: list[Any] = [None] * len(flat)
        for place, value in zip(places, mapped, strict=True):
            # The gradient of a shared argument is the sum over all elements.
            gradients[place] = tf.reduce_sum(value, 0, keepdims=True) if shared[place] else value
        return list(inputs.pack(gradients))

    return gradient


_SEVERAL = (
    "A higher derivative of a Python function was asked for, of the gradients of a batch that is "
    "made in a branch or a loop: {description}. Take the branch or the loop out of the function "
    "that is mapped, or map it with tf.map_fn."
)


class GradientOfBatch(GradientSpec):
    """The derivatives of a call for a batch of upstream gradients.

    The forward call covered all elements, with one handle, or there was a call with a handle for
    each element. The handles lead to the tape residuals.

    Attributes:
      axes: for each source, the number of batches that are first axes of its tensor.
      handle_axes: the number of batches that are axes of the handle; they are the outermost ones.
    """

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
        self.axes = list(axes)
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
    """The gradient of a pure function for a batch of upstream gradients.

    Attributes:
      looped: the indices of the batches that are no axes of the arguments. The function runs once
        for all of their elements.
    """

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
            shapes = [source.shape[axes:] for source in found]
            return over_axes(
                lambda _, part: gradients_of(tape, results, found, part), dy, looped, depth, shapes
            )

        self._call = recomputing(of.parent, of.targets, sources, derive, persistent=True)
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
    """Compute the gradients for all elements of the batches.

    Args:
      gradients: returns the gradients for an index into all batches, 0 in those that are not
        `looped`, and for the upstream gradients there.
      upstream: the upstream gradients, whose first axes are the batches.
      looped: the batches for whose elements `gradients` is called one by one.
      depth: the number of batches.
      shapes: the shapes of the gradients for one element.
    """
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
