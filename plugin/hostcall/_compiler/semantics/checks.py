"""Checks: what makes TensorFlow's CPU kernel of an op raise an error for its operands' values.

XLA has no errors for values. It moves an index that is out of range into range, say, or gives some
number for a division by zero. Each check writes a scalar that is true where the CPU kernel raises,
out of ops that are right in XLA with sizes that only the run knows. `failures.py` makes errors of
these scalars. `python -m tests.kernels raising` goes through all kernels to find what raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._compiler.analyses import index_ranges
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds, protos
from hostcall._tf.graph.function_edits import OpWriter
from hostcall._tf.types import NodeDef

INVALID_ARGUMENT, OUT_OF_RANGE, INTERNAL = 3, 11, 13  # status codes
_INT8, _INT16, _UINT8, _UINT16, _UINT32, _UINT64 = (
    dtype.as_datatype_enum
    for dtype in (tf.int8, tf.int16, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
)
_SIGNED = frozenset({_INT8, _INT16, defs.INT32, defs.INT64})
_INTEGERS = _SIGNED | {_UINT8, _UINT16, _UINT32, _UINT64}
_SHAPES = frozenset({defs.INT32, defs.INT64})


class CheckWriter(OpWriter):
    """A writer of the nodes that look at the operands of one node."""

    def __init__(self, node: NodeDef, nodes: Mapping[str, Any], types: defs.Types) -> None:
        super().__init__(node, "hostcall_check")
        self._nodes = nodes
        self._types = types
        self._taken = 0

    def take(self) -> list[Any]:
        """Return the nodes that were added since the last call."""
        taken = self.nodes[self._taken :]
        self._taken = len(self.nodes)
        return taken

    def dtype(self, value: str) -> int:
        """Return the dtype of an operand of the node."""
        return self._types.of(value)

    def source(self, value: str) -> NodeDef | None:
        """Return the node that an operand comes from; None for an argument of the function."""
        return self._nodes.get(defs.source(value))

    def known(self, value: str) -> np.ndarray | None:
        """Return an operand as an array if it is a constant, else None."""
        return defs.constant(self.source(value))

    def length(self, vector: str) -> int:
        """Return how many elements a vector has, or 0 if that is not known."""
        source = self.source(vector)
        if source is not None and source.op == "Pack":
            return len(defs.data_inputs(source))
        known = self.known(vector)
        return 0 if known is None else len(known)

    def shape(self, value: str, dtype: int, out_type: int = defs.INT32) -> str:
        """Write the shape of a value."""
        return self.add("Shape", value, T=dtype, out_type=out_type)

    def element(self, vector: str, index: int, dtype: int) -> str:
        """Write an element of a vector; negative indices count from its end."""
        begin, end, one = (self.constant([i], defs.INT32, [1]) for i in (index, index + 1, 1))
        value = self.add("StridedSlice", vector, begin, end, one, T=dtype, Index=defs.INT32)
        self.nodes[-1].attr["shrink_axis_mask"].i = 1
        return value

    def size(self, value: str, dimension: int, out_type: int = defs.INT32) -> str:
        """Write the size of a dimension of an operand."""
        return self.element(self.shape(value, self.dtype(value), out_type), dimension, out_type)

    def any_is(self, kind: str, values: str, limit: str, dtype: int) -> str:
        """Write whether an integer is "outside" [0, limit), "equal" to it or "at_least" it."""
        result = self.add("HostcallAny", values, limit, T=dtype)
        self.nodes[-1].attr["kind"].s = kind.encode()
        return result

    def any(self, condition: str) -> str:
        """Write whether an element of a value of booleans is true."""
        zero, one = self.constant(0, defs.INT32), self.constant(1, defs.INT32)
        axes = self.add(
            "Range", zero, self.add("Rank", condition, T=defs.BOOL), one, Tidx=defs.INT32
        )
        return self.add("Any", condition, axes, Tidx=defs.INT32)

    def result(self) -> str:
        """Return the first result of the node."""
        return f"{self.node.name}:{op_kinds.op_def(self.node.op).output_arg[0].name}:0"

    def count(self, value: str, dtype: int) -> str:
        """Write the number of elements of a value of a dtype."""
        return self.add("Size", value, T=dtype, out_type=defs.INT32)

    def if_any(self, failing: str, value: str, dtype: int) -> str:
        """Write whether a scalar is true and a value has elements; "" stands for false."""
        if not failing:
            return failing
        has_some = self.add(
            "Greater", self.count(value, dtype), self.constant(0, defs.INT32), T=defs.INT32
        )
        return self.both(failing, has_some)

    def unless_held(self, failing: str, indices: str, limit: str, dtype: int) -> str:
        """Write a scalar, or false if indices are places in a value that is not too large."""
        # XLA knows the sizes of nearly all values, and then needs no loop over the indices.
        if (holder := index_ranges.holder(indices, self._nodes)) is None:
            return failing
        value, dimension = holder
        if dimension is None:
            size = self.add("Size", value, T=self.dtype(value), out_type=dtype)
        else:
            size = self.size(value, dimension, dtype)
        return self.both(failing, self.add("Greater", size, limit, T=dtype))

    def both(self, failing: str, known: str) -> str:
        """Write whether two scalars are true, the second of which XLA knows as a rule."""
        return self.add("HostcallAnd", failing, known)

    def either(self, one: str, other: str) -> str:
        """Write whether one of two scalars is true; "" stands for false."""
        return self.add("LogicalOr", one, other) if one and other else one or other


# Writes whether a node raises; "" if its constants say that it never does.
Failing = Callable[[CheckWriter], str]


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of an op's operands, and the error that it stands for."""

    failing: Failing
    message: str | Callable[[CheckWriter], str]
    code: int = INVALID_ARGUMENT

    def text(self, writer: CheckWriter) -> str:
        """Return the message for the writer's node."""
        return self.message if isinstance(self.message, str) else self.message(writer)


def _dtype_of_indices(writer: CheckWriter, indices: str) -> int:
    """Return the dtype in which indices are compared with a size."""
    dtype = writer.dtype(indices)
    return dtype if dtype in _SHAPES else defs.INT64


def _outside(writer: CheckWriter, indices: str, limit: str) -> str:
    """Write whether an index is not in [0, limit); the limit is of the dtype of indices."""
    dtype = _dtype_of_indices(writer, indices)
    values = writer.cast(indices, writer.dtype(indices), dtype)
    failing = writer.any_is("outside", values, limit, dtype)
    return writer.unless_held(failing, indices, limit, dtype)


def _outside_dimension(writer: CheckWriter, indices: str, values: str, dimension: int) -> str:
    dtype = _dtype_of_indices(writer, indices)
    known = writer.known(indices)
    if known is not None and not known.size:
        return ""
    if _are_masked(writer, indices, values, dimension):
        return ""
    return _outside(writer, indices, writer.size(values, dimension, dtype))


def _are_masked(writer: CheckWriter, indices: str, values: str, dimension: int) -> bool:
    """Return whether a mask keeps indices inside of a constant."""
    source, known = writer.source(indices), writer.known(values)
    if known is None or source is None or source.op != "BitwiseAnd":
        return False
    masks = [writer.known(value) for value in source.input[:2]]
    size = known.shape[dimension]
    return any(
        mask is not None and mask.size and 0 <= mask.min() <= mask.max() < size for mask in masks
    )


def _gather(writer: CheckWriter) -> str:
    values, indices = writer.inputs[:2]
    if writer.node.op == "GatherV2":
        failing = _outside_axis(writer)
    else:
        failing = _outside_dimension(writer, indices, values, 0)
    return writer.if_any(failing, writer.result(), writer.dtype(values))


def _outside_axis(writer: CheckWriter) -> str:
    values, indices, axis = writer.inputs
    known = writer.known(axis)
    if known is not None:
        return _outside_dimension(writer, indices, values, int(known))
    dtype, axis_dtype = _dtype_of_indices(writer, indices), writer.dtype(axis)
    axis = writer.cast(axis, axis_dtype, defs.INT32)
    rank = writer.add("Rank", values, T=writer.dtype(values))
    axis = writer.add("FloorMod", axis, rank, T=defs.INT32)
    shape, zero = writer.shape(values, writer.dtype(values), dtype), writer.constant(0, defs.INT32)
    types = {"Tparams": dtype, "Tindices": defs.INT32, "Taxis": defs.INT32}
    return _outside(writer, indices, writer.add("GatherV2", shape, axis, zero, **types))


def _outside_variable(writer: CheckWriter) -> str:
    """Write whether an index is outside of the first dimension of a variable."""
    indices = writer.inputs[1]
    dtype = _dtype_of_indices(writer, indices)
    return _outside(writer, indices, writer.element(_shape_of_variable(writer, dtype), 0, dtype))


# Writes the shape of the array that rows of indices are places in, in a dtype.
ShapeWriter = Callable[[CheckWriter, int], str]


def _shape_of_first(writer: CheckWriter, dtype: int) -> str:
    values = writer.inputs[0]
    return writer.shape(values, writer.dtype(values), dtype)


def _shape_in_last(writer: CheckWriter, dtype: int) -> str:
    """Write the shape that the last operand holds."""
    shape = writer.inputs[-1]
    return writer.cast(shape, writer.dtype(shape), dtype)


def _shape_of_variable(writer: CheckWriter, dtype: int) -> str:
    return writer.add("VariableShape", writer.inputs[0], out_type=dtype)


def _in_shape(shape_of: ShapeWriter, indices: int) -> Failing:
    """Return a check of an operand whose rows are places in an array."""

    def failing(writer: CheckWriter) -> str:
        node = writer.node
        if "bad_indices_policy" in node.attr and node.attr["bad_indices_policy"].s == b"IGNORE":
            return ""
        rows = writer.inputs[indices]
        dtype = _dtype_of_indices(writer, rows)
        one, zero = (writer.constant([number], defs.INT32, [1]) for number in (1, 0))
        depth = writer.element(writer.shape(rows, writer.dtype(rows)), -1, defs.INT32)
        axis = writer.constant(0, defs.INT32)
        end = writer.add("ExpandDims", depth, axis, T=defs.INT32, Tdim=defs.INT32)
        shape = shape_of(writer, dtype)
        limits = writer.add("StridedSlice", shape, zero, end, one, T=dtype, Index=defs.INT32)
        rows = writer.cast(rows, writer.dtype(rows), dtype)
        low = writer.add("Less", rows, writer.constant(0, dtype), T=dtype)
        high = writer.add("GreaterEqual", rows, limits, T=dtype)
        return writer.any(writer.add("LogicalOr", low, high))

    return failing


def _segment_at_least(writer: CheckWriter) -> str:
    """Write whether a segment id is too large; TensorFlow drops negative ones."""
    values, ids, count = writer.inputs
    dtype = _dtype_of_indices(writer, ids)
    ids = writer.cast(ids, writer.dtype(ids), dtype)
    count = writer.cast(count, writer.dtype(count), dtype)
    failing = writer.any_is("at_least", ids, count, dtype)
    failing = writer.unless_held(failing, writer.inputs[1], count, dtype)
    return writer.if_any(failing, values, writer.dtype(values))


def _division_by_zero(writer: CheckWriter) -> str:
    dtype = writer.node.attr["T"].type
    if dtype not in _INTEGERS:
        return ""
    divisor = writer.inputs[1]
    known = writer.known(divisor)
    if known is not None and not (known == 0).any():
        return ""
    failing = writer.any_is("equal", divisor, writer.constant(0, dtype), dtype)
    return writer.if_any(failing, writer.inputs[0], dtype)


def _negative_power(writer: CheckWriter) -> str:
    dtype = writer.node.attr["T"].type
    if dtype not in _SIGNED:
        return ""
    exponent = writer.inputs[1]
    known = writer.known(exponent)
    if known is not None and not (known < 0).any():
        return ""
    return writer.if_any(_any_negative(writer, exponent), writer.inputs[0], dtype)


def _negative(writer: CheckWriter) -> str:
    return _any_negative(writer, writer.inputs[0])


def _any_negative(writer: CheckWriter, values: str) -> str:
    """Write whether an integer is negative."""
    dtype = writer.dtype(values)
    # As unsigned integers, the negative ones are not less than the least of them.
    least = np.iinfo(tf.as_dtype(dtype).as_numpy_dtype).min
    return writer.any_is("outside", values, writer.constant(least, dtype), dtype)


def _assertion(writer: CheckWriter) -> str:
    return writer.add("LogicalNot", writer.inputs[0])


def _text_of_assertion(writer: CheckWriter) -> str:
    texts = [writer.known(value) for value in writer.inputs[1:]]
    words = [
        f"[{text.item().decode(errors='replace') if text.dtype == object else text}]"
        for text in texts
        if text is not None
    ]
    return f"assertion failed: {' '.join(words)}"


def _has(*kinds: str) -> Failing:
    """Return a check that finds elements of each of some kinds, such as "IsNan"."""

    def failing(writer: CheckWriter) -> str:
        dtype, (value,) = writer.node.attr["T"].type, writer.inputs
        found = [writer.any(writer.add(kind, value, T=dtype)) for kind in kinds]
        return found[0] if len(found) == 1 else writer.add("LogicalAnd", *found)

    return failing


def _numbers(words: str, *kinds: str) -> Check:
    """Return a check of CheckNumerics, whose message holds that of the node."""
    return Check(
        _has(*kinds),
        lambda writer: (
            f"{writer.node.attr['message'].s.decode(errors='replace')} : Tensor had {words} values"
        ),
    )


def _taken_index(writer: CheckWriter) -> str:
    """Write whether an index `x[i]` of a strided slice is outside of its dimension."""
    found = ""
    dtype = writer.node.attr["Index"].type
    for value, dimension in _single_indices(writer, writer.inputs[1]):
        size = _size_of_sliced(writer, dimension, dtype)
        # Indices from -size on count from the end.
        moved = writer.add("AddV2", value, size, T=dtype)
        limit = writer.add("AddV2", size, size, T=dtype)
        found = writer.either(found, writer.any_is("outside", moved, limit, dtype))
    return found


def _size_of_sliced(writer: CheckWriter, dimension: int, dtype: int) -> str:
    sliced = writer.inputs[0]
    if writer.node.op == "StridedSliceGrad":  # the operand is the shape
        return writer.element(sliced, dimension, dtype)
    known = dtype if dtype in _SHAPES else defs.INT32
    return writer.cast(writer.size(sliced, dimension, known), known, dtype)


def _single_indices(writer: CheckWriter, begin: str) -> list[tuple[str, int]]:
    """List the indices that are not constants and take one element, with their dimensions."""
    node, dtype = writer.node, writer.node.attr["Index"].type
    shrinks = protos.integer(node, "shrink_axis_mask")
    source = writer.source(begin)
    if not shrinks or (source is not None and source.op == "Const"):
        return []
    packed = defs.data_inputs(source) if source is not None and source.op == "Pack" else None
    count = max(shrinks.bit_length(), *map(writer.length, (begin, writer.inputs[3])))
    ellipsis, added = (protos.integer(node, f"{kind}_mask") for kind in ("ellipsis", "new_axis"))
    found = []
    for i in range(count):
        if not shrinks >> i & 1:
            continue
        if packed is not None and writer.known(packed[i]) is not None:
            continue  # XLA checks it when it compiles
        before = sum(1 for j in range(i) if not (added >> j & 1))
        after = sum(1 for j in range(i, count) if not (added >> j & 1))
        dimension = -after if ellipsis & ((1 << i) - 1) else before
        value = packed[i] if packed is not None else writer.element(begin, i, dtype)
        found.append((value, dimension))
    return found


def _outside_slice(writer: CheckWriter) -> str:
    """Write whether a slice does not lie in its operand."""
    values, begin, size = writer.inputs
    dtype = writer.node.attr["Index"].type
    if writer.known(begin) is not None:
        return ""  # XLA checks it when it compiles
    zero = writer.constant(0, dtype)
    shape = writer.shape(values, writer.node.attr["T"].type, dtype)
    end = writer.add("AddV2", begin, writer.add("Maximum", size, zero, T=dtype), T=dtype)
    low = writer.add("Less", begin, zero, T=dtype)
    high = writer.add("Greater", begin, shape, T=dtype)  # alone, as the end may wrap around
    outside = writer.add("LogicalOr", low, high)
    high = writer.add("Greater", end, shape, T=dtype)
    return writer.any(writer.add("LogicalOr", outside, high))


def _label_outside(writer: CheckWriter) -> str:
    logits, labels = writer.inputs
    return _outside_dimension(writer, labels, logits, -1)


def _too_long(writer: CheckWriter) -> str:
    values, lengths = writer.inputs
    dtype = _dtype_of_indices(writer, lengths)
    size = writer.size(values, writer.node.attr["seq_dim"].i, dtype)
    limit = writer.add("AddV2", size, writer.constant(1, dtype), T=dtype)
    return _outside(writer, lengths, limit)


def _partition_outside(writer: CheckWriter) -> str:
    count = writer.constant(writer.node.attr["num_partitions"].i, defs.INT32)
    return _outside(writer, writer.inputs[1], count)


def _outside_list(writer: CheckWriter) -> str:
    length = writer.add("TensorListLength", writer.inputs[0])
    return _outside(writer, writer.inputs[1], length)


def _outside_list_of_fixed_size(writer: CheckWriter) -> str:
    grows = protos.is_true(writer.node, "resize_if_index_out_of_bounds")
    return "" if grows else _outside_list(writer)


def _other_sum(writer: CheckWriter) -> str:
    """Write whether the lengths of a list's elements are not all of a tensor together."""
    values, _, lengths = writer.inputs
    total = writer.add(
        "Sum", lengths, writer.constant(0, defs.INT32), T=defs.INT64, Tidx=defs.INT32
    )
    return writer.add("NotEqual", total, writer.size(values, 0, defs.INT64), T=defs.INT64)


def _in_array(writer: CheckWriter) -> str:
    """Write whether an index is outside of a TensorArray of TensorFlow 1."""
    size = writer.add("TensorArraySizeV3", writer.inputs[0], writer.inputs[-1])
    return _outside(writer, writer.inputs[1], size)


def _threshold(writer: CheckWriter) -> str:
    """Write whether a threshold is not in [0, 1]."""
    threshold = writer.inputs[3]
    dtype = writer.dtype(threshold)
    low = writer.add("GreaterEqual", threshold, writer.constant(0.0, dtype), T=dtype)
    high = writer.add("LessEqual", threshold, writer.constant(1.0, dtype), T=dtype)
    return writer.add("LogicalNot", writer.add("LogicalAnd", low, high))


def _not_all(kind: str, first: int, second: int | None = None) -> Failing:
    """Return a check of an operand whose numbers must compare with those of another, or with 0."""

    def failing(writer: CheckWriter) -> str:
        value = writer.inputs[first]
        dtype = writer.dtype(value)
        other = writer.constant(0, dtype) if second is None else writer.inputs[second]
        known = writer.known(value), np.zeros([]) if second is None else writer.known(other)
        if all(array is not None for array in known) and _COMPARED[kind](*known).all():
            return ""
        holds = writer.add(kind, value, other, T=dtype)
        return writer.any(writer.add("LogicalNot", holds))  # as it holds of no NaN

    return failing


_COMPARED: Mapping[str, Callable[..., Any]] = {
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "NotEqual": np.not_equal,
}


def _band_beyond(count: int, dimension: int) -> Failing:
    """Return a check of how many diagonals beside the first are kept; all, if it is negative."""

    def failing(writer: CheckWriter) -> str:
        value = writer.inputs[count]
        known = writer.known(value)
        if known is not None and known <= 0:
            return ""
        dtype = writer.dtype(value)
        size = writer.size(writer.inputs[0], dimension, dtype)
        return writer.add("Greater", value, size, T=dtype)

    return failing


def _no_quantized_range(writer: CheckWriter) -> str:
    """Write whether the least number of a range, if one is given for all, is not below the last."""
    node = writer.node
    is_of_channels = "axis" in node.attr and node.attr["axis"].i >= 0
    if is_of_channels or not protos.is_true(node, "range_given"):
        return ""
    return _not_all("LessEqual", 1, 2)(writer)


def _no_bits(writer: CheckWriter) -> str:
    """Write whether integers have no bits, or more than a double can hold the limits of."""
    bits = writer.inputs[3]
    most = 61 if protos.is_true(writer.node, "signed_input") else 62
    known = writer.known(bits)
    if known is not None and 1 <= known <= most:
        return ""
    before = writer.add("Sub", bits, writer.constant(1, defs.INT32), T=defs.INT32)
    return writer.any_is("outside", before, writer.constant(most, defs.INT32), defs.INT32)


def _no_scales(*positions: int) -> Failing:
    """Return a check of operands whose numbers must be positive and finite."""

    def failing(writer: CheckWriter) -> str:
        found = ""
        for position in positions:
            scales = writer.inputs[position]
            is_number = writer.add("IsFinite", scales, T=writer.dtype(scales))
            infinite = writer.any(writer.add("LogicalNot", is_number))
            found = writer.either(found, infinite)
            found = writer.either(found, _not_all("Greater", position)(writer))
        return found

    return failing


def _no_sparse_indices(writer: CheckWriter) -> str:
    """Write whether indices lie outside of a shape or, if they are validated, are not in order."""
    indices, shape, *_ = writer.inputs
    dtype = writer.node.attr["Tindices"].type
    low = writer.add("Less", indices, writer.constant(0, dtype), T=dtype)
    high = writer.add("GreaterEqual", indices, shape, T=dtype)
    outside = writer.any(writer.add("LogicalOr", low, high))
    if "validate_indices" in writer.node.attr and not protos.is_true(
        writer.node, "validate_indices"
    ):
        return outside
    indices, shape = (writer.cast(value, dtype, defs.INT64) for value in (indices, shape))
    return writer.either(outside, _not_increasing(writer, indices, shape))


def _not_increasing(writer: CheckWriter, indices: str, shape: str) -> str:
    """Write whether rows of indices, of dtype int64 as the shape, are not in strict order."""
    zero, one = writer.constant(0, defs.INT32), writer.constant(1, defs.INT32)
    strides = writer.add("Cumprod", shape, zero, T=defs.INT64, Tidx=defs.INT32)
    for name in ("exclusive", "reverse"):
        writer.nodes[-1].attr[name].b = True
    depth, rest = writer.count(shape, defs.INT64), writer.constant(-1, defs.INT32)
    wanted = writer.add("Pack", rest, depth, T=defs.INT32)
    writer.nodes[-1].attr["N"].i = 2
    rows = writer.add("Reshape", indices, wanted, T=defs.INT64, Tshape=defs.INT32)
    places = writer.add("Mul", rows, strides, T=defs.INT64)
    places = writer.add("Sum", places, one, T=defs.INT64, Tidx=defs.INT32)
    begin, second, step = (writer.constant([n], defs.INT32, [1]) for n in (0, 1, 1))
    last = writer.constant([-1], defs.INT32, [1])
    types = {"T": defs.INT64, "Index": defs.INT32}
    before = writer.add("StridedSlice", places, begin, last, step, **types)
    after = writer.add("StridedSlice", places, second, begin, step, **types)
    writer.nodes[-1].attr["end_mask"].i = 1
    return writer.any(writer.add("LessEqual", after, before, T=defs.INT64))


def _empty_range(low: int) -> Failing:
    """Return a check of the bounds of random integers, which are operands `low` and the next."""

    def failing(writer: CheckWriter) -> str:
        dtype = writer.dtype(writer.inputs[low])
        failing = writer.add("GreaterEqual", *writer.inputs[low : low + 2], T=dtype)
        return _if_drawn(writer, failing)

    return failing


def _no_truncated_range(writer: CheckWriter) -> str:
    """Write whether random numbers have no spread, or no range to lie in."""
    failing = writer.either(_not_all("Greater", 2)(writer), _not_all("Less", 3, 4)(writer))
    return _if_drawn(writer, failing)


def _no_mean(writer: CheckWriter) -> str:
    """Write whether a mean of random numbers is infinite or NaN."""
    means = writer.inputs[1]
    is_number = writer.add("IsFinite", means, T=writer.dtype(means))
    return _if_drawn(writer, writer.any(writer.add("LogicalNot", is_number)))


def _if_drawn(writer: CheckWriter, failing: str) -> str:
    """Write whether a scalar is true and the shape of random numbers has elements."""
    if not failing:
        return failing
    shape, axis = writer.inputs[0], writer.constant(0, defs.INT32)
    dtype = writer.dtype(shape)
    count = writer.add("Prod", shape, axis, T=dtype, Tidx=defs.INT32)
    has_some = writer.add("Greater", count, writer.constant(0, dtype), T=dtype)
    return writer.both(failing, has_some)


def _no_permutation(writer: CheckWriter) -> str:
    """Write whether values are not each of 0 to n - 1 once."""
    (values,) = writer.inputs
    dtype = writer.node.attr["T"].type
    size = writer.size(values, 0, dtype)
    ones = writer.add("OnesLike", values, T=dtype)
    types = {"T": dtype, "Tindices": dtype, "Tnumsegments": dtype}
    counts = writer.add("UnsortedSegmentSum", ones, values, size, **types)
    is_other = writer.add("NotEqual", counts, ones, T=dtype)
    return writer.either(_outside(writer, values, size), writer.any(is_other))


_INDICES = "indices are not all in [0, n), where n is the size of the dimension that they index"
_ROWS = "indices do not all point into the shape that they index"
_SEGMENTS = "segment_ids are not all below num_segments"
_ZERO = "Integer division by zero"
_ARRAY = "an index is outside of the TensorArray"
_RANGE = "Invalid range: input_min > input_max"
_TRUNCATED = "Unexpected error in binary operator (only integer div and mod should have errors)"
_BAND = "must be negative or less or equal to number of"
_SCALES = "scales are not all positive and finite"
_STRENGTH = "regularization strength is not a non-negative scalar"
_BOUNDS = "Need minval < maxval"


def _for(ops: str, check: Check) -> dict[str, tuple[Check, ...]]:
    return dict.fromkeys(ops.split(), (check,))


# The checks of each op, in the order in which its kernel makes them.
CHECKS: Mapping[str, tuple[Check, ...]] = {
    **_for("Assert", Check(_assertion, _text_of_assertion)),
    "CheckNumerics": (
        _numbers("Inf and NaN", "IsInf", "IsNan"),
        _numbers("NaN", "IsNan"),
        _numbers("Inf", "IsInf"),
    ),
    **_for("Div FloorDiv FloorMod Mod", Check(_division_by_zero, _ZERO)),
    **_for("TruncateDiv TruncateMod", Check(_division_by_zero, _TRUNCATED, INTERNAL)),
    **_for("Pow", Check(_negative_power, "Integers to negative integer powers are not allowed")),
    **_for("Gather GatherV2", Check(_gather, _INDICES)),
    **_for("ResourceGather", Check(_outside_variable, _INDICES)),
    **_for("GatherNd", Check(_in_shape(_shape_of_first, 1), _ROWS)),
    **_for("ResourceGatherNd", Check(_in_shape(_shape_of_variable, 1), _ROWS)),
    **_for("ScatterNd", Check(_in_shape(_shape_in_last, 0), _ROWS)),
    **_for(
        "TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMin TensorScatterMax",
        Check(_in_shape(_shape_of_first, 1), _ROWS),
    ),
    **_for(
        "ResourceScatterAdd ResourceScatterSub ResourceScatterMul "
        "ResourceScatterMin ResourceScatterMax ResourceScatterUpdate",
        Check(_outside_variable, _INDICES),
    ),
    "ResourceScatterDiv": (
        Check(_not_all("NotEqual", 2), "updates must not contain 0"),
        Check(_outside_variable, _INDICES),
    ),
    **_for(
        "ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate "
        "ResourceScatterNdMin ResourceScatterNdMax",
        Check(_in_shape(_shape_of_variable, 1), _ROWS),
    ),
    **_for(
        "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMin UnsortedSegmentMax",
        Check(_segment_at_least, _SEGMENTS),
    ),
    **_for("StridedSlice StridedSliceGrad", Check(_taken_index, "slice index out of bounds")),
    **_for("Slice", Check(_outside_slice, "the slice does not lie in its operand")),
    **_for(
        "SparseSoftmaxCrossEntropyWithLogits",
        Check(
            _label_outside,
            "Received a label value which is outside the valid range of [0, classes)",
        ),
    ),
    **_for(
        "DynamicPartition",
        Check(_partition_outside, "partitions are not all in [0, num_partitions)"),
    ),
    **_for(
        "ReverseSequence", Check(_too_long, "seq_lengths are not all in [0, the size of seq_dim]")
    ),
    **_for(
        "TensorListGetItem", Check(_outside_list, "Trying to access an element outside of the list")
    ),
    **_for(
        "TensorListSetItem",
        Check(_outside_list_of_fixed_size, "Trying to modify an element outside of the list"),
    ),
    **_for(
        "TensorListGather", Check(_outside_list, "Trying to gather elements outside of the list")
    ),
    **_for(
        "TensorListSplit", Check(_other_sum, "lengths are not together the length of the tensor")
    ),
    **_for("TensorArrayReadV3 TensorArrayGatherV3", Check(_in_array, _ARRAY)),
    **_for("TensorArrayWriteV3 TensorArrayScatterV3", Check(_in_array, _ARRAY)),
    **_for(
        "SparseToDense",
        Check(_no_sparse_indices, "indices are out of bounds, repeated or unsorted"),
    ),
    **_for(
        "NonMaxSuppressionV3 NonMaxSuppressionV4",
        Check(_threshold, "iou_threshold must be in [0, 1]"),
    ),
    **_for("Bincount DenseBincount", Check(_negative, "Input arr must be non-negative!")),
    **_for(
        "InvertPermutation",
        Check(_no_permutation, "the values are not a permutation of 0 to n - 1"),
    ),
    "MatrixBandPart": (
        Check(_band_beyond(1, -2), f"num_lower {_BAND} rows"),
        Check(_band_beyond(2, -1), f"num_upper {_BAND} columns"),
    ),
    **_for("QuantizeAndDequantizeV2 QuantizeAndDequantizeV4", Check(_no_quantized_range, _RANGE)),
    "QuantizeAndDequantizeV3": (
        Check(_no_bits, "num_bits is out of range"),
        Check(_no_quantized_range, _RANGE),
    ),
    **_for("UniformDequantize", Check(_not_all("Greater", 1), "scales are not all positive")),
    **_for("UniformRequantize", Check(_no_scales(1, 3), _SCALES)),
    **_for("UniformQuantizedAdd UniformQuantizedDot", Check(_no_scales(2, 4, 6), _SCALES)),
    "ResourceApplyProximalAdagrad": (
        Check(_not_all("Greater", 2), "lr is not a positive scalar"),
        Check(_not_all("GreaterEqual", 3), f"l1 {_STRENGTH}"),
        Check(_not_all("GreaterEqual", 4), f"l2 {_STRENGTH}"),
    ),
    "ParameterizedTruncatedNormal": (
        Check(_no_truncated_range, "Invalid parameters"),
        Check(
            _no_mean,
            "TruncatedNormal rejection sampler failed to accept a sample",
            INTERNAL,
        ),
    ),
    **_for("RandomUniformInt", Check(_empty_range(1), _BOUNDS)),
    **_for("StatelessRandomUniformInt", Check(_empty_range(2), _BOUNDS)),
    **_for("StatelessRandomUniformIntV2", Check(_empty_range(4), _BOUNDS)),
}
