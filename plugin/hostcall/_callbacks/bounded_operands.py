"""What a shape function says for operands whose sizes are only bounded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from hostcall._callbacks.specs import BoundedSpec, Spec

ShapeFunction = Callable[[Sequence[Spec]], Sequence[Spec | None]]

# By how much operands are smaller for which a shape function is asked again; the last empties them.
_LESS = (1, 2, 2**62)


def ask(shape_function: ShapeFunction, operands: Sequence[Spec]) -> Sequence[Spec | None]:
    """Ask a shape function; a size that follows a bounded one is bounded itself.

    Many shape functions return `tf.TensorSpec(x.shape, x.dtype)`, whatever `x` is. A size that is
    another one when the operands are smaller is no exact size, though the function says so.

    Args:
      shape_function: returns a spec of each result, or None, for the specs of the operands.
      operands: what XLA knows of the operands.

    Returns:
      What the function says, with a BoundedSpec for each result that has such a size.
    """
    said = shape_function(operands)
    if not any(isinstance(operand, BoundedSpec) for operand in operands):
        return said
    answers = [*_answers_for_less(shape_function, operands)]
    return [_bounded(spec, [other[i] for other in answers]) for i, spec in enumerate(said)]


def _answers_for_less(
    shape_function: ShapeFunction, operands: Sequence[Spec]
) -> Iterator[Sequence[Spec | None]]:
    for less in _LESS:
        with contextlib.suppress(Exception):  # it may ask for more than there is then
            yield shape_function([_made_smaller(operand, less) for operand in operands])


def _made_smaller(operand: Spec, less: int) -> Spec:
    if not isinstance(operand, BoundedSpec):
        return operand
    bounds = operand.shape.as_list()
    sizes = [
        max(bound - less, 0) if dim in operand.dynamic_dims else bound
        for dim, bound in enumerate(bounds)
    ]
    return BoundedSpec(sizes, operand.dtype, operand.dynamic_dims)


def _bounded(said: Spec | None, for_less: Sequence[Spec | None]) -> Spec | None:
    """The spec with a bound for each size that differs in one of the other answers."""
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
