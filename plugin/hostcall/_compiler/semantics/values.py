"""Replacements: ops in whose place compiled programs have others, with graph mode's values.

XLA computes some ops differently from TensorFlow's kernels, for NaN, infinity, zeros, numbers out
of range. Each function here writes nodes that both compute alike, so a cluster has the same values
whichever of them runs it. `_compiler/ops.py` says which ops get which.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.function_edits import OpWriter
from hostcall._tf.types import NodeDef

_PARTS_OF_COMPLEX = {
    tf.complex64.as_datatype_enum: tf.float32.as_datatype_enum,
    tf.complex128.as_datatype_enum: tf.float64.as_datatype_enum,
}
# The integers of as many bits as a float has.
_INTEGERS = {
    tf.half: tf.int16.as_datatype_enum,
    tf.bfloat16: tf.int16.as_datatype_enum,
    tf.float32: defs.INT32,
    tf.float64: defs.INT64,
}
_UINT32, _UINT64 = (dtype.as_datatype_enum for dtype in (tf.uint32, tf.uint64))
_OF_BOOLEANS = frozenset({"LogicalAnd", "LogicalNot", "LogicalOr"})
# The constants of tf.nn.selu.
_SCALE, _SCALE_ALPHA = 1.0507009873554805, 1.7580993408473768


class Writer(OpWriter):
    """A writer of the nodes that replace one node; their dtype is by default that of the node."""

    def __init__(self, node: NodeDef, around: Mapping[str, Any] | None = None) -> None:
        super().__init__(node)
        self.around = around or {}  # the nodes of the function by their names

    def add(self, op: str, *inputs: str, **types: int) -> str:
        """Add a node with attributes `types`, or else the node's `T`; return its first result."""
        if op not in _OF_BOOLEANS:
            types = types or {"T": self.node.attr["T"].type}
        return super().add(op, *inputs, **types)

    def again(self, *inputs: str, **types: int) -> str:
        """Add the same op with other operands, perhaps of other dtypes; return its result."""
        value = self.add(self.node.op, *inputs)
        for name, attribute in self.node.attr.items():
            self.nodes[-1].attr[name].CopyFrom(attribute)
        for name, dtype in types.items():
            self.nodes[-1].attr[name].type = dtype
        return value


def complex_to_bool(writer: Writer) -> str:
    """Write whether the real part of complex numbers is not zero."""
    real, part = _part(writer, "Real", writer.node.attr["SrcT"].type)
    return writer.add("Cast", real, SrcT=part, DstT=defs.BOOL)


def _part(writer: Writer, name: str, dtype: int) -> tuple[str, int]:
    """Write the "Real" or the "Imag" part of a complex operand; return it and its dtype."""
    part = _PARTS_OF_COMPLEX[dtype]
    return writer.add(name, writer.inputs[0], T=dtype, Tout=part), part


def complex_absolute(writer: Writer) -> str:
    """Write an absolute number that is infinite where a part is, or else NaN where a part is."""
    return _of_larger_part(writer, of_infinity=True)


def complex_nan(writer: Writer) -> str:
    """Write an op of complex numbers whose real part is NaN, too, where the imaginary one is."""
    return _of_larger_part(writer, of_infinity=False)


def _of_larger_part(writer: Writer, of_infinity: bool) -> str:
    """Write the op with a NaN for both parts, and perhaps with an infinity."""
    # XLA looks at the larger part, and does not take NaN for that if it is the imaginary one.
    dtype = writer.node.attr["T"].type
    (real, part), (imaginary, _) = (_part(writer, name, dtype) for name in ("Real", "Imag"))
    is_known = writer.add("IsFinite" if of_infinity else "IsNan", imaginary, T=part)
    if not of_infinity:
        is_known = writer.add("LogicalNot", is_known)
    stays = writer.add("LogicalOr", writer.add("IsInf", real, T=part), is_known)
    real = writer.add("SelectV2", stays, real, imaginary, T=part)
    return writer.again(writer.add("Complex", real, imaginary, T=part, Tout=dtype))


def safe_gradient(writer: Writer) -> str:
    """Write a gradient that is zero where the incoming gradient is, whatever the derivative."""
    y, gradient = writer.inputs
    is_complex = writer.node.attr["T"].type in _PARTS_OF_COMPLEX
    found = functools.partial(_gradient_of_complex, writer) if is_complex else writer.again
    zeros = writer.add("ZerosLike", gradient)
    is_zero = writer.add("Equal", gradient, zeros)
    return writer.add("SelectV2", is_zero, zeros, found(y, gradient))


def _gradient_of_complex(writer: Writer, y: str, gradient: str) -> str:
    """Write the gradient with a conjugate; it is right by the kernels of XLA and of TensorFlow."""
    y = writer.add("Conj", y)
    dtype = writer.node.attr["T"].type
    if writer.node.op == "SqrtGrad":
        half = writer.add("Mul", gradient, writer.constant(0.5, dtype))
        return writer.add("RealDiv", half, y)
    square = writer.add("Mul", y, y)
    if writer.node.op == "ReciprocalGrad":
        return writer.add("Neg", writer.add("Mul", gradient, square))
    cube = writer.add("Mul", square, y)
    return writer.add("Mul", writer.add("Mul", gradient, writer.constant(-0.5, dtype)), cube)


def selu_gradient(writer: Writer) -> str:
    """Write the gradient of `tf.nn.selu` with the slope of zero as TensorFlow takes it."""
    gradients, outputs = writer.inputs
    dtype = writer.node.attr["T"].type
    is_negative = writer.add("Less", outputs, writer.constant(0.0, dtype))
    slope = writer.add("AddV2", outputs, writer.constant(_SCALE_ALPHA, dtype))
    slope = writer.add("SelectV2", is_negative, slope, writer.constant(_SCALE, dtype))
    return writer.add("Mul", gradients, slope)


def cut_to_shape(writer: Writer) -> str:
    """Write the gradient of a strided slice, cut to its shape."""
    shape, *rest = writer.inputs
    index = writer.node.attr["Index"].type
    begin = writer.add("ZerosLike", shape, T=index)
    dtype = writer.node.attr["T"].type
    return writer.add("Slice", writer.again(shape, *rest), begin, shape, T=dtype, Index=index)


def in_top_k(writer: Writer) -> str:
    """Write a result that is false where the target is not a class or a score is not finite."""
    scores, targets, _ = writer.inputs
    dtype = writer.node.attr["T"].type
    one, two = writer.constant([1], defs.INT32, [1]), writer.constant([2], defs.INT32, [1])
    shape = writer.add("Shape", scores, T=defs.FLOAT, out_type=dtype)
    classes = writer.add("StridedSlice", shape, one, two, one, T=dtype, Index=defs.INT32)
    writer.nodes[-1].attr["shrink_axis_mask"].i = 1
    is_finite = writer.add("IsFinite", scores, T=defs.FLOAT)
    conditions = [
        writer.add("GreaterEqual", targets, writer.constant(0, dtype)),
        writer.add("Less", targets, classes),
        writer.add("All", is_finite, one, Tidx=defs.INT32),
    ]
    found, no = writer.again(*writer.inputs), writer.constant(False, defs.BOOL)
    for condition in conditions:
        found = writer.add("SelectV2", condition, found, no, T=defs.BOOL)
    return found


def ones_like(writer: Writer) -> str:
    """Write ones that have the true size of a value of bounded size."""
    dtype = writer.node.attr["T"].type
    zeros = writer.add("ZerosLike", *writer.inputs)
    return writer.add("Cast", writer.add("Equal", zeros, zeros), SrcT=defs.BOOL, DstT=dtype)


def reduction(writer: Writer) -> str:
    """Write a largest or least element, which is NaN where an element is."""
    x, axes = writer.inputs

    def of_bits(x: str, dtype: int) -> str:
        # XLA's reduction of floats skips NaN. It vectorizes that of floats, and of no integers.
        bits = _Bits(writer, tf.as_dtype(dtype))
        return bits.farther(writer.again(bits.nearer(x), axes, T=dtype))

    return _wide(writer, x, of_bits)


class _Bits:
    """Floats on the side of a reduction's result, moved by one: infinity stands for NaN then.

    The least number beside zero becomes zero, as numbers so small do in TensorFlow's threads.
    """

    def __init__(self, writer: Writer, dtype: tf.DType) -> None:
        self._writer = writer
        self._dtype = dtype
        self._integer = _INTEGERS[dtype]
        self._is_largest = writer.node.op == "Max"
        self._infinity = self._constant(np.inf if self._is_largest else -np.inf)
        self._one = writer.constant(1, self._integer)

    def nearer(self, x: str) -> str:
        """Write each number as the next one towards zero, and NaN as infinity."""
        # XLA computes them in the loop of the reduction only if `x` is used once: as bits.
        bits = self._of_float(x)
        most = self._writer.constant(tf.as_dtype(self._integer).max, self._integer)
        is_nan = self._add("Greater", self._add("BitwiseAnd", bits, most), self._constant(np.inf))
        moved = self._add("Sub", bits, self._one)
        moved = self._add("SelectV2", self._is_moved(bits), moved, bits)
        return self._as_float(self._add("SelectV2", is_nan, self._infinity, moved))

    def farther(self, x: str) -> str:
        """Write each number as the next one away from zero, and infinity as NaN."""
        bits = self._of_float(x)
        is_nan = self._add("Equal", bits, self._infinity)
        moved = self._add("AddV2", bits, self._one)
        moved = self._add("SelectV2", is_nan, self._constant(np.nan), moved)
        return self._as_float(self._add("SelectV2", self._is_moved(bits), moved, bits))

    def _is_moved(self, bits: str) -> str:
        """Write whether numbers are above zero, or below it for a least element."""
        if not self._is_largest:
            sign = self._writer.constant(tf.as_dtype(self._integer).min, self._integer)
            bits = self._add("BitwiseXor", bits, sign)
        return self._add("Greater", bits, self._writer.constant(0, self._integer))

    def _of_float(self, x: str) -> str:
        number = self._dtype.as_datatype_enum
        return self._writer.add("Bitcast", x, T=number, type=self._integer)

    def _as_float(self, bits: str) -> str:
        number = self._dtype.as_datatype_enum
        return self._writer.add("Bitcast", bits, T=self._integer, type=number)

    def _constant(self, number: float) -> str:
        """Write a float's bits."""
        bits = np.array(number, self._dtype.as_numpy_dtype).view(f"i{self._dtype.size}")
        return self._writer.constant(int(bits), self._integer)

    def _add(self, op: str, *inputs: str) -> str:
        return self._writer.add(op, *inputs, T=self._integer)


def _but_negative(writer: Writer, bits: str, other: str, integer: int) -> str:
    """Write integers, with others in the places of those that are negative."""
    is_negative = writer.add("Less", bits, writer.constant(0, integer), T=integer)
    return writer.add("SelectV2", is_negative, other, bits, T=integer)


def pool(writer: Writer) -> str:
    """Write the largest elements of windows, no less than the least finite number."""
    dtype = tf.as_dtype(writer.node.attr["T"].type)
    least = writer.constant(dtype.min, dtype.as_datatype_enum)
    return writer.add("Maximum", writer.again(*writer.inputs), least)


def in_32_bits(writer: Writer) -> str:
    """Write an op of floats with 16 bits as one of 32 bits."""
    x, *rest = writer.inputs
    return _wide(writer, x, lambda x, dtype: writer.again(x, *rest, T=dtype))


def _wide(writer: Writer, x: str, write: Callable[[str, int], str]) -> str:
    """Write nodes for floats of at least 32 bits, and the casts to them and back."""
    dtype = writer.node.attr["T"].type
    if tf.as_dtype(dtype).size > 2:
        return write(x, dtype)
    result = write(writer.add("Cast", x, SrcT=dtype, DstT=defs.FLOAT), defs.FLOAT)
    return writer.add("Cast", result, SrcT=defs.FLOAT, DstT=dtype)


def extreme(writer: Writer) -> str:
    """Write the larger or the lesser of two numbers, which is NaN where the second is."""
    x, y = writer.inputs  # XLA keeps a NaN of the first
    return writer.add("SelectV2", writer.add("IsNan", y), y, writer.again(x, y))


def index_of_extreme(writer: Writer) -> str:
    """Write the place of the largest or least number, or 0; it is never that of a NaN."""
    (x, axis), is_largest = writer.inputs, writer.node.op == "ArgMax"
    dtype = tf.as_dtype(writer.node.attr["T"].type)
    integer = _INTEGERS[dtype]
    # TensorFlow's kernel begins with the last finite number, and takes only what is beyond it.
    last = _key_of(dtype.min if is_largest else dtype.max, dtype)
    # XLA computes the numbers in the same loop only if they are used once: as integers.
    keys = _ordered(writer, x, dtype)
    infinite = writer.constant(_key_of(-np.inf, dtype) * (-1 if is_largest else 1), integer)
    is_nan = writer.add("Less", *((infinite, keys) if is_largest else (keys, infinite)), T=integer)
    none = writer.constant(last, integer)
    keys = writer.add("SelectV2", is_nan, none, keys, T=integer)
    keys = writer.add("Maximum" if is_largest else "Minimum", keys, none, T=integer)
    return writer.again(keys, axis, T=integer)


def _ordered(writer: Writer, x: str, dtype: tf.DType) -> str:
    """Write floats as integers in the same order, with 0 for both zeros and NaN at both ends."""
    integer = _INTEGERS[dtype]
    bits = writer.add("Bitcast", x, T=dtype.as_datatype_enum, type=integer)
    least = writer.constant(tf.as_dtype(integer).min, integer)  # the bits of -0.0
    return _but_negative(writer, bits, writer.add("Sub", least, bits, T=integer), integer)


def _key_of(number: float, dtype: tf.DType) -> int:
    """Return the integer that `_ordered` has for a number."""
    size = dtype.size
    bits = np.array(abs(number), dtype.as_numpy_dtype).view(f"i{size}")
    return int(-bits if number < 0 else bits)


def clip(writer: Writer) -> str:
    """Write numbers moved between two limits, where a limit that is NaN is none."""
    x, low, high = writer.inputs
    x = writer.add("SelectV2", writer.add("Less", high, x), high, x)
    return writer.add("SelectV2", writer.add("Less", x, low), low, x)


def elu_gradient(writer: Writer) -> str:
    """Write the gradient of `tf.nn.elu`, which passes through where an output is NaN."""
    gradients, outputs = writer.inputs
    dtype = writer.node.attr["T"].type
    one = writer.constant(1.0, dtype)
    is_negative = writer.add("Less", outputs, writer.constant(0.0, dtype))
    slope = writer.add("SelectV2", is_negative, writer.add("AddV2", outputs, one), one)
    return writer.add("Mul", gradients, slope)


def relu_gradient(writer: Writer) -> str:
    """Write the gradient of `tf.nn.relu` or `relu6` with products, which keep NaN and signs."""
    gradients, features = writer.inputs
    dtype = writer.node.attr["T"].type
    zero = writer.constant(0.0, dtype)
    passes = writer.add("Greater", features, zero)
    if writer.node.op == "Relu6Grad":
        is_less = writer.add("Less", features, writer.constant(6.0, dtype))
        passes = writer.add("LogicalAnd", passes, is_less)
    # XLA makes a selection of zero out of a product with a condition.
    return writer.add("SelectV2", passes, gradients, writer.add("Mul", gradients, zero))


def sign(writer: Writer) -> str:
    """Write a sign that is 0.0, not -0.0, for zeros."""
    (x,), dtype = writer.inputs, writer.node.attr["T"].type
    zero = writer.constant(0.0, dtype)
    return writer.add("SelectV2", writer.add("Equal", x, zero), zero, writer.again(x))


def shift(writer: Writer) -> str:
    """Write a shift by a count that is moved into the bits of the dtype."""
    (x, count), dtype = writer.inputs, writer.node.attr["T"].type
    most = writer.constant(8 * tf.as_dtype(dtype).size - 1, dtype)
    count = writer.add("Minimum", count, most)
    return writer.again(x, writer.add("Maximum", count, writer.constant(0, dtype)))


def square(writer: Writer) -> str:
    """Write the square of integers so that XLA does not take it for positive: it may wrap."""
    x = writer.inputs[0]
    return writer.add("Neg", writer.add("Mul", x, writer.add("Neg", x)))


def opaque(writer: Writer) -> str:
    """Write the same op so that XLA does not take its integers for positive: they may wrap."""
    zero = writer.constant(0, writer.node.attr["T"].type)
    return writer.add("BitwiseXor", writer.again(*writer.inputs), zero)


def bool_to_float(writer: Writer) -> str:
    """Write 1 or 0 so that XLA does not make a selection of a product with it, which loses NaN."""
    dtype = writer.node.attr["DstT"].type
    one, zero = writer.constant(1.0, dtype), writer.constant(0.0, dtype)
    return writer.add("SelectV2", writer.inputs[0], one, zero, T=dtype)


def floor_division(writer: Writer) -> str:
    """Write the floor of a quotient that is rounded to its 16 bits first, as by a kernel."""
    dtype, bits = writer.node.attr["T"].type, tf.int16.as_datatype_enum
    # XLA goes on with 32 bits, unless integers come between.
    quotient = writer.add("Bitcast", writer.add("RealDiv", *writer.inputs), T=dtype, type=bits)
    quotient = writer.add("BitwiseXor", quotient, writer.constant(0, bits), T=bits)
    return writer.add("Floor", writer.add("Bitcast", quotient, T=bits, type=dtype))


def at_least_zero(writer: Writer) -> str:
    """Write a comparison with zero that XLA does not take for true of NaN, too."""
    x, y = writer.inputs
    is_reversed = writer.node.op == "LessEqual"
    number, zero = (y, x) if is_reversed else (x, y)
    return writer.add("LessEqual", writer.add("Neg", number), zero)


def top_k(writer: Writer) -> tuple[str, str]:
    """Write the largest numbers, where 0.0 and -0.0 are equal, and their places."""
    x, k = writer.inputs
    dtype = writer.node.attr["T"].type
    zero = writer.constant(0.0, dtype)
    keys = writer.add("SelectV2", writer.add("Equal", x, zero), zero, x)
    values = writer.again(keys, k)
    places = values.replace(":values:", ":indices:")
    flat, found = (_as_rows(writer, v, t) for v, t in ((x, dtype), (places, defs.INT32)))
    types = {"Tparams": dtype, "Tindices": defs.INT32, "Taxis": defs.INT32}
    taken = writer.add("GatherV2", flat, found, writer.constant(1, defs.INT32), **types)
    writer.nodes[-1].attr["batch_dims"].i = 1
    shape = writer.add("Shape", values, T=dtype, out_type=defs.INT32)
    return writer.add("Reshape", taken, shape, T=dtype, Tshape=defs.INT32), places


def _as_rows(writer: Writer, value: str, dtype: int) -> str:
    """Write a value as a matrix with the same last dimension."""
    shape = writer.add("Shape", value, T=dtype, out_type=defs.INT32)
    last, one = writer.constant([-1], defs.INT32, [1]), writer.constant([1], defs.INT32, [1])
    size = writer.add("StridedSlice", shape, last, one, one, T=defs.INT32, Index=defs.INT32)
    writer.nodes[-1].attr["end_mask"].i = 1
    axis = writer.constant(0, defs.INT32)
    wanted = writer.add("ConcatV2", last, size, axis, T=defs.INT32, Tidx=defs.INT32)
    writer.nodes[-1].attr["N"].i = 2
    return writer.add("Reshape", value, wanted, T=dtype, Tshape=defs.INT32)


def softmax(writer: Writer) -> str:
    """Write a softmax as oneDNN's: beside NaN, numbers whose distance is known become 0."""
    return _wide(writer, writer.inputs[0], functools.partial(_softmax, writer))


def _softmax(writer: Writer, x: str, dtype: int) -> str:
    add, number = functools.partial(writer.add, T=dtype), tf.as_dtype(dtype)
    least, largest, infinity = (
        writer.constant(limit, dtype) for limit in (number.min, number.max, np.inf)
    )
    # The largest number of a row with NaN is NaN by TensorFlow's kernel, and not by XLA's.
    most = _of_rows(writer, "Max", x, dtype)
    most = add("SelectV2", add("GreaterEqual", most, least), most, largest)
    powers = add("Exp", add("Sub", x, most))
    total = _of_rows(writer, "Sum", powers, dtype)
    total = add("SelectV2", add("IsNan", total), infinity, total)
    return add("RealDiv", powers, total)


def _of_rows(writer: Writer, op: str, x: str, dtype: int) -> str:
    """Write a reduction of the last dimension, which the result keeps."""
    last = writer.constant([-1], defs.INT32, [1])
    value = writer.add(op, x, last, T=dtype, Tidx=defs.INT32)
    writer.nodes[-1].attr["keep_dims"].b = True
    return value


def cast(writer: Writer) -> str:
    """Write a cast of floats to integers as processors make it."""
    (x,) = writer.inputs
    source, target = (writer.node.attr[name].type for name in ("SrcT", "DstT"))
    if source in _PARTS_OF_COMPLEX:
        x, source = _part(writer, "Real", source)
    if target == _UINT64:
        return _to_uint64(writer, x, source)
    wide = defs.INT64 if target in (defs.INT64, _UINT32) else defs.INT32
    integer = _to_signed(writer, x, source, wide)
    return writer.cast(integer, wide, target)


def _to_signed(writer: Writer, x: str, source: int, target: int) -> str:
    """Write floats as integers of 32 or 64 bits: the least one for NaN and all out of range."""
    bits = 8 * tf.as_dtype(target).size
    fits = writer.add("Less", x, _limit(writer, bits - 1, source), T=source)
    integer = writer.add("Cast", x, SrcT=source, DstT=target)
    least = writer.constant(-(2 ** (bits - 1)), target)
    return writer.add("SelectV2", fits, integer, least, T=target)


def _limit(writer: Writer, exponent: int, dtype: int) -> str:
    """Write a power of two, or infinity where a dtype of floats has no number as large."""
    is_number = dtype != tf.half.as_datatype_enum
    return writer.constant(2.0**exponent if is_number else np.inf, dtype)


def _to_uint64(writer: Writer, x: str, source: int) -> str:
    signed = _to_signed(writer, x, source, defs.INT64)
    low = writer.add("Cast", signed, SrcT=defs.INT64, DstT=_UINT64)
    high = writer.add("Cast", x, SrcT=source, DstT=_UINT64)
    fits = writer.add("Less", x, _limit(writer, 64, source), T=source)
    middle = writer.constant(2**63, _UINT64)
    high = writer.add("SelectV2", fits, high, middle, T=_UINT64)
    is_low = writer.add("Less", x, _limit(writer, 63, source), T=source)
    return writer.add("SelectV2", is_low, low, high, T=_UINT64)
