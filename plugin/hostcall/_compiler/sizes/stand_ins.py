"""The sizes of what script ops return, by stand-ins for the sizes and ranks that are not known."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

import tensorflow as tf

from hostcall._compiler.analyses.sizes import Shape, Size, Symbol, Tensor
from hostcall._compiler.sizes.flow import SymbolMaker
from hostcall._functions.options import TRACE
from hostcall._ops import lookup, result_shapes
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.structures import BoundedSpec, Spec
from hostcall._tf.types import NodeDef
from hostcall_runtime._errors import LoweringError

# Stand-ins for unknown sizes and ranks: they only serve to learn which sizes are bounded.
_SIZES = (2, 8, 3, 1)
_RANKS = (1, 2, 3, 4, 0)


def results_of(
    node: NodeDef, operands: Sequence[Tensor], symbol: SymbolMaker
) -> list[Shape | None] | None:
    """Return the shapes of a script op's results in a program, or None if no size is bounded."""
    try:
        spec = lookup.existing_spec_of(node)
    except LoweringError:  # the op cannot run in this process
        return None
    if spec.like is not None:
        followed = [operands[i] for i in spec.like]
        shapes = [operand.shape for operand in followed]
        return _padded(shapes, node) if any(operand.bounded for operand in followed) else None
    said = _said(spec, node, operands)
    if not any(isinstance(one, BoundedSpec) for one in said):
        return None
    exact = all(_is_exact(operand) for operand in operands) or spec.shape_function is None
    found = [_sizes(i, one, exact, symbol) for i, one in enumerate(said)]
    return _padded(found, node)


def _padded(shapes: list[Shape | None], node: NodeDef) -> list[Shape | None]:
    """Append the scalar shape of the hidden result of an EagerPyFunc."""
    hidden = len(node.attr["Tout"].list.type) - len(shapes)
    return [*shapes, *[()] * hidden]


def _said(spec: CallbackSpec, node: NodeDef, operands: Sequence[Tensor]) -> list[Spec]:
    """Return the specs of the results for these operands, with stand-ins for unknown sizes."""
    declared = spec.options.result
    if spec.shape_function is None or (isinstance(declared, str) and declared == TRACE):
        return list(spec.static_specs)
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    for size, rank in itertools.product(_SIZES, _RANKS):
        specs = [_made_up(o, dtype, size, rank) for o, dtype in zip(operands, dtypes, strict=True)]
        with contextlib.suppress(LoweringError):  # the shape function may refuse some stand-ins
            return result_shapes.known(spec, node, specs)
        if all(map(_is_exact, operands)):
            break
    return list(spec.static_specs)


def _made_up(operand: Tensor, dtype: tf.DType, size: int, rank: int) -> Spec:
    shape = (None,) * rank if operand.shape is None else operand.shape
    sizes = [_bound(n, size) for n in shape]
    unknown = operand.bounded and operand.shape is None
    dims = [d for d, n in enumerate(shape) if unknown or isinstance(n, Symbol)]
    return BoundedSpec(sizes, dtype, dims) if dims else tf.TensorSpec(sizes, dtype)


def _bound(size: Size, made_up: int) -> int:
    known = size.bound if isinstance(size, Symbol) else size
    return made_up if known is None else known


def _is_exact(operand: Tensor) -> bool:
    """Return whether an operand needs no stand-ins."""
    return operand.shape is not None and all(
        size is not None and not (isinstance(size, Symbol) and size.bound is None)
        for size in operand.shape
    )


def _sizes(index: int, spec: Spec, exact: bool, symbol: SymbolMaker) -> Shape | None:
    if isinstance(spec, BoundedSpec):
        return tuple(
            symbol(index, dim, size if exact else None)
            if dim in spec.dynamic_dims
            else (size if exact else None)
            for dim, size in enumerate(spec.shape.as_list())
        )
    if spec.shape.rank is None:
        return ()  # compiling it is an error
    return tuple(spec.shape.as_list() if exact else [None] * spec.shape.rank)
