"""Random numbers: those of TensorFlow's CPU kernels, in compiled programs.

Both XLA and TensorFlow draw bits by Philox, an algorithm whose numbers follow from a key and a
counter, and these from the user's seeds. But XLA derives key and counter otherwise, and makes other
floats of the bits. `ROWS` writes such ops as TensorFlow's kernels compute them, to the last bit.

Other ops go to the host: those whose kernels discard an unknown count of bits, or whose numbers
depend on the number of threads; and ops with seeds that keep a state of their own, the place in the
stream, from call to call. An op without seeds draws arbitrary numbers, so it stays in the program.

In graph mode, each call of a function has its own copy of the function's ops, and so of their
states. `separate` makes such copies of functions that would share states otherwise. Each kernel
of a partitioned function has ops of its own (csrc/functions/call_kernel.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from hostcall._compiler.analyses.effects import Effects
from hostcall._compiler.semantics.values import Writer
from hostcall._ops import settings
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_names, op_kinds, protos
from hostcall._tf.graph.function_edits import OpWriter
from hostcall._tf.graph.solver import solve
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef

_HALF, _BFLOAT16, _DOUBLE, _UINT32, _UINT64 = (
    dtype.as_datatype_enum for dtype in (tf.half, tf.bfloat16, tf.float64, tf.uint32, tf.uint64)
)
_PHILOX, _THREEFRY = 1, 2  # the numbers of algorithms in the operand `alg`
_GET_KEY = "StatelessRandomGetKeyCounter"
_NO_INLINING = "_noinline"  # the attribute of a function that TensorFlow does not inline

# The key by which TensorFlow's kernels encrypt seeds.
_SEED_KEY = 0x02461E293EC8F720
# The count of the mantissa's bits. TensorFlow's kernels fill them with the last of the random bits.
_MANTISSA = {defs.FLOAT: 23, _HALF: 10, _BFLOAT16: 7}
_ONE_AS_FLOAT, _ONE_AS_DOUBLE = 0x3F800000, 0x3FF << 52
_DOUBLE_MANTISSA = (1 << 52) - 1
# The least number whose logarithm makes a normal one.
_LEAST = 1e-7


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float.fromhex, text.split()))


# glibc's float functions, by which TensorFlow's kernels compute. All steps are in double precision,
# so neither XLA's functions nor its order of operations can change the last bit of a float.
_LOG_OFFSET = 0x3F330000
_LOG_INVERSES = _numbers(
    "0x1.661ec79f8f3bep+0 0x1.571ed4aaf883dp+0 0x1.49539f0f010bp+0 0x1.3c995b0b80385p+0 "
    "0x1.30d190c8864a5p+0 0x1.25e227b0b8eap+0 0x1.1bb4a4a1a343fp+0 0x1.12358f08ae5bap+0 "
    "0x1.0953f419900a7p+0 0x1p+0 0x1.e608cfd9a47acp-1 0x1.ca4b31f026aap-1 "
    "0x1.b2036576afce6p-1 0x1.9c2d163a1aa2dp-1 0x1.886e6037841edp-1 0x1.767dcf5534862p-1"
)
_LOGARITHMS = _numbers(
    "-0x1.57bf7808caadep-2 -0x1.2bef0a7c06ddbp-2 -0x1.01eae7f513a67p-2 -0x1.b31d8a68224e9p-3 "
    "-0x1.6574f0ac07758p-3 -0x1.1aa2bc79c81p-3 -0x1.a4e76ce8c0e5ep-4 -0x1.1973c5a611cccp-4 "
    "-0x1.252f438e10c1ep-5 0x0p+0 0x1.aa5aa5df25984p-5 0x1.c5e53aa362eb4p-4 "
    "0x1.526e57720db08p-3 0x1.bc2860d22477p-3 0x1.1058bc8a07ee1p-2 0x1.4043057b6ee09p-2"
)
_LOG_TERMS = _numbers("-0x1.00ea348b88334p-2 0x1.5575b0be00b6ap-2 -0x1.ffffef20a4123p-2")
_SINE_TERMS = _numbers("-0x1.555545995a603p-3 0x1.1107605230bc4p-7 -0x1.994eb3774cf24p-13")
_COSINE_TERMS = _numbers(
    "-0x1.ffffffd0c621cp-2 0x1.55553e1068f19p-5 -0x1.6c087e89a359dp-10 0x1.99343027bf8c3p-16"
)
_QUADRANT_BITS = 24
_QUADRANTS = float.fromhex("0x1.45F306DC9C883p+23")  # 2 / pi, times 2 ** 24


class Draw(NamedTuple):
    """The operands that random bits follow from."""

    shape: str
    key: str
    counter: str
    alg: str
    shape_type: int  # the dtype of the shape


class RandomWriter(OpWriter):
    """A writer of the nodes that replace a node; `controls` are what its effects wait for."""

    def __init__(self, node: NodeDef) -> None:
        super().__init__(node)
        self.controls = [value for value in node.input if value.startswith("^")]

    def dtype(self, attribute: str = "dtype") -> int:
        """Return a dtype among the node's attributes."""
        return int(self.node.attr[attribute].type)

    def combine(self, op: str, dtype: int, value: str, other: str | float) -> str:
        """Write an op of two operands of a dtype, the second of which may be a number."""
        if not isinstance(other, str):
            other = self.constant(other, dtype)
        return self.add(op, value, other, T=dtype)

    def part(self, values: str, begin: int, dtype: int) -> str:
        """Write the element of a vector at a position, as a vector."""
        first, one = self.constant([begin], defs.INT32), self.constant([1], defs.INT32)
        return self.add("Slice", values, first, one, T=dtype, Index=defs.INT32)

    def bits(self, draw: Draw, dtype: int) -> str:
        """Write random bits as unsigned integers of a dtype."""
        operands = (draw.shape, draw.key, draw.counter, draw.alg)
        op = "StatelessRandomUniformFullIntV2"
        return self.add(op, *operands, dtype=dtype, Tshape=draw.shape_type)


# Writes the values of a node's results.
Write: TypeAlias = Callable[[RandomWriter], list[str]]


def _key_and_counter(writer: RandomWriter) -> list[str]:
    """Write the key and the counter of two seeds: the seeds, encrypted, and zeros between."""
    seed = writer.inputs[0 if writer.node.op.startswith(_GET_KEY) else 1]
    seed = writer.cast(seed, writer.dtype("Tseed"), defs.INT64)
    counter = writer.add("Bitcast", seed, T=defs.INT64, type=_UINT64)
    shape, key = writer.constant([2], defs.INT32), writer.constant([_SEED_KEY], _UINT64)
    alg = writer.constant(_PHILOX, defs.INT32)
    mixed = writer.bits(Draw(shape, key, counter, alg, defs.INT32), _UINT64)
    zero, axis = writer.constant([0], _UINT64), writer.constant(0, defs.INT32)
    parts = (zero, writer.part(mixed, 1, _UINT64))
    counter = writer.add("ConcatV2", *parts, axis, T=_UINT64, Tidx=defs.INT32)
    writer.nodes[-1].attr["N"].i = len(parts)
    return [writer.part(mixed, 0, _UINT64), counter]


def _key_counter_and_algorithm(writer: RandomWriter) -> list[str]:
    return [*_key_and_counter(writer), writer.constant(_PHILOX, defs.INT32)]


def _of_key(writer: RandomWriter) -> Draw:
    """Return the operands of a node that takes a key and a counter."""
    shape, key, counter, alg, *_ = writer.inputs
    return Draw(shape, key, counter, alg, writer.dtype("Tshape"))


def _of_seeds(writer: RandomWriter) -> Draw:
    """Write the operands of a node of TensorFlow 1 that takes two seeds."""
    key, counter = _key_and_counter(writer)
    alg = writer.constant(_PHILOX, defs.INT32)
    return Draw(writer.inputs[0], key, counter, alg, writer.dtype("T"))


def _of_generator(writer: RandomWriter) -> Draw:
    """Write the operands of a node that takes the variable of a generator, and advances it."""
    variable, algorithm, shape, *_ = writer.inputs
    shape_type = writer.dtype("shape_dtype")
    alg = writer.cast(algorithm, defs.INT64, defs.INT32)
    delta = writer.cast(_count(writer, shape, shape_type), shape_type, _UINT64)
    state = writer.add("RngReadAndSkip", variable, alg, delta)
    writer.nodes[-1].input.extend(writer.controls)
    begin, size = writer.constant([0], defs.INT32), writer.constant([2], defs.INT32)
    counter = writer.add("Slice", state, begin, size, T=defs.INT64, Index=defs.INT32)
    counter, key = (
        writer.add("Bitcast", part, T=defs.INT64, type=_UINT64)
        for part in (counter, writer.part(state, 2, defs.INT64))
    )
    return Draw(shape, key, counter, alg, shape_type)


def _count(writer: RandomWriter, shape: str, shape_type: int) -> str:
    """Write the number of elements of a shape."""
    axis = writer.constant([0], defs.INT32)
    return writer.add("Prod", shape, axis, T=shape_type, Tidx=defs.INT32)


def _uniform(writer: RandomWriter, draw: Draw) -> str:
    dtype = writer.dtype()
    if dtype == _DOUBLE:
        return _doubles(writer, writer.bits(draw, _UINT64))
    floats = _floats(writer, writer.bits(draw, _UINT32), _MANTISSA[dtype])
    return writer.cast(floats, defs.FLOAT, dtype)


def _floats(writer: RandomWriter, bits: str, mantissa: int = _MANTISSA[defs.FLOAT]) -> str:
    """Write floats in [0, 1) whose mantissas are the last of some bits."""
    bits = writer.combine("BitwiseAnd", _UINT32, bits, (1 << mantissa) - 1)
    if left := _MANTISSA[defs.FLOAT] - mantissa:
        bits = writer.combine("LeftShift", _UINT32, bits, left)
    bits = writer.combine("BitwiseOr", _UINT32, bits, _ONE_AS_FLOAT)
    floats = writer.add("Bitcast", bits, T=_UINT32, type=defs.FLOAT)
    return writer.combine("Sub", defs.FLOAT, floats, 1.0)


def _doubles(writer: RandomWriter, bits: str) -> str:
    """Write doubles in [0, 1) from bits whose halves TensorFlow takes in the other order."""
    low, high = (writer.combine(shift, _UINT64, bits, 32) for shift in ("RightShift", "LeftShift"))
    bits = writer.combine("BitwiseOr", _UINT64, low, high)
    bits = writer.combine("BitwiseAnd", _UINT64, bits, _DOUBLE_MANTISSA)
    bits = writer.combine("BitwiseOr", _UINT64, bits, _ONE_AS_DOUBLE)
    doubles = writer.add("Bitcast", bits, T=_UINT64, type=_DOUBLE)
    return writer.combine("Sub", _DOUBLE, doubles, 1.0)


def _normal(writer: RandomWriter, draw: Draw) -> str:
    """Write normal numbers, two from each two uniform ones, by the method of Box and Muller."""
    dtype = writer.dtype()
    float_type = _DOUBLE if dtype == _DOUBLE else defs.FLOAT
    count = _count(writer, draw.shape, draw.shape_type)
    odd = writer.combine("BitwiseAnd", draw.shape_type, count, 1)
    even = writer.combine("AddV2", draw.shape_type, count, odd)
    axis = writer.constant(0, defs.INT32)
    even, count = (
        writer.add("ExpandDims", number, axis, T=draw.shape_type, Tdim=defs.INT32)
        for number in (even, count)
    )
    flat = draw._replace(shape=even)
    if dtype == _DOUBLE:
        uniform = _doubles(writer, writer.bits(flat, _UINT64))
    else:
        uniform = _floats(writer, writer.bits(flat, _UINT32))
    shape = writer.constant([-1, 2], defs.INT32)
    pairs = writer.add("Reshape", uniform, shape, T=float_type, Tshape=defs.INT32)
    one = writer.add("Unpack", pairs, T=float_type)
    writer.nodes[-1].attr["num"].i = 2
    writer.nodes[-1].attr["axis"].i = 1
    other = one.removesuffix("0") + "1"
    drawn = _pack(writer, _box_muller(writer, one, other, float_type), float_type)
    shape = writer.constant([-1], defs.INT32)
    drawn = writer.add("Reshape", drawn, shape, T=float_type, Tshape=defs.INT32)
    begin = writer.constant([0], draw.shape_type)
    drawn = writer.add("Slice", drawn, begin, count, T=float_type, Index=draw.shape_type)
    drawn = writer.add("Reshape", drawn, draw.shape, T=float_type, Tshape=draw.shape_type)
    return writer.cast(drawn, float_type, dtype)


def _pack(writer: RandomWriter, values: Sequence[str], dtype: int) -> str:
    """Write vectors as the columns of a matrix."""
    packed = writer.add("Pack", *values, T=dtype)
    writer.nodes[-1].attr["N"].i = len(values)
    writer.nodes[-1].attr["axis"].i = 1
    return packed


def _box_muller(writer: RandomWriter, one: str, other: str, dtype: int) -> list[str]:
    """Write two normal numbers from two uniform ones."""
    one = writer.combine("Maximum", dtype, one, _LEAST)
    angle = writer.cast(other, dtype, _DOUBLE)
    angle = writer.combine("Mul", _DOUBLE, angle, 2 * math.pi)
    logarithm = writer.add("Log", one, T=dtype) if dtype == _DOUBLE else _logarithm(writer, one)
    radius = writer.add("Sqrt", writer.combine("Mul", dtype, logarithm, -2.0), T=dtype)
    if dtype == _DOUBLE:
        ways = (writer.add(op, angle, T=dtype) for op in ("Sin", "Cos"))
        return [writer.combine("Mul", dtype, way, radius) for way in ways]
    drawn = []
    for way, sign in _sine_and_cosine(writer, writer.cast(angle, _DOUBLE, dtype)):
        # XLA would join the product to a later sum, and not round it, but for bits of the sign.
        product = writer.add("Mul", way, radius, T=dtype)
        bits = writer.add("Bitcast", product, T=dtype, type=defs.INT32)
        bits = writer.add("BitwiseXor", bits, sign, T=defs.INT32)
        drawn.append(writer.add("Bitcast", bits, T=defs.INT32, type=dtype))
    return drawn


def _logarithm(writer: RandomWriter, x: str) -> str:
    """Write the logarithms of floats that are positive and normal, as glibc's `logf` has them."""
    bits = writer.add("Bitcast", x, T=defs.FLOAT, type=defs.INT32)
    offset = writer.combine("Sub", defs.INT32, bits, _LOG_OFFSET)
    place = writer.combine("RightShift", defs.INT32, offset, 19)
    place = writer.combine("BitwiseAnd", defs.INT32, place, len(_LOGARITHMS) - 1)
    exponent = writer.combine("RightShift", defs.INT32, offset, 23)
    scaled = writer.combine("LeftShift", defs.INT32, exponent, 23)
    mantissa = writer.combine("Sub", defs.INT32, bits, scaled)
    mantissa = writer.add("Bitcast", mantissa, T=defs.INT32, type=defs.FLOAT)
    types = {"Tparams": _DOUBLE, "Tindices": defs.INT32, "Taxis": defs.INT32}
    axis = writer.constant(0, defs.INT32)
    inverse, logarithm = (
        writer.add("GatherV2", writer.constant(table, _DOUBLE), place, axis, **types)
        for table in (_LOG_INVERSES, _LOGARITHMS)
    )
    number = _Doubles(writer)
    exponent = writer.cast(exponent, defs.INT32, _DOUBLE)
    mantissa = writer.cast(mantissa, defs.FLOAT, _DOUBLE)
    rest = number.sum(number.product(mantissa, inverse), -1.0)
    whole = number.sum(number.product(exponent, math.log(2)), logarithm)
    square = number.product(rest, rest)
    cubic, quadratic, linear = _LOG_TERMS
    terms = number.sum(number.product(rest, quadratic), linear)
    terms = number.sum(number.product(square, cubic), terms)
    terms = number.sum(number.product(terms, square), number.sum(whole, rest))
    return writer.cast(terms, _DOUBLE, defs.FLOAT)


def _sine_and_cosine(writer: RandomWriter, angle: str) -> list[tuple[str, str]]:
    """Write the sine and cosine of floats in [0, 2 pi], as glibc's `sincosf` has them.

    Each is a float and an integer, whose bit for the sign is set where the float is to be negated.
    """
    number = _Doubles(writer)
    x = writer.cast(angle, defs.FLOAT, _DOUBLE)
    quadrant = writer.cast(number.product(x, _QUADRANTS), _DOUBLE, defs.INT32)
    half = 1 << (_QUADRANT_BITS - 1)
    quadrant = writer.combine("AddV2", defs.INT32, quadrant, half)
    quadrant = writer.combine("RightShift", defs.INT32, quadrant, _QUADRANT_BITS)
    turned = number.product(writer.cast(quadrant, defs.INT32, _DOUBLE), -math.pi / 2)
    x = number.sum(x, turned)
    square = number.product(x, x)
    sine, cosine = _sine(number, x, square), _cosine(number, square)
    is_odd = writer.combine("BitwiseAnd", defs.INT32, quadrant, 1)
    is_odd = writer.combine("NotEqual", defs.INT32, is_odd, 0)
    next_one = writer.combine("AddV2", defs.INT32, quadrant, 1)
    results = []
    for even, odd, signs in ((sine, cosine, quadrant), (cosine, sine, next_one)):
        value = writer.add("SelectV2", is_odd, odd, even, T=_DOUBLE)
        sign = writer.combine("BitwiseAnd", defs.INT32, signs, 2)
        sign = writer.combine("LeftShift", defs.INT32, sign, 30)
        results.append((writer.cast(value, _DOUBLE, defs.FLOAT), sign))
    return results


def _sine(number: _Doubles, x: str, square: str) -> str:
    first, second, third = _SINE_TERMS
    cube = number.product(x, square)
    end = number.sum(number.product(square, third), second)
    start = number.sum(number.product(cube, first), x)
    return number.sum(start, number.product(number.product(cube, square), end))


def _cosine(number: _Doubles, square: str) -> str:
    first, second, third, fourth = _COSINE_TERMS
    fourth_power = number.product(square, square)
    end = number.sum(number.product(square, fourth), third)
    start = number.sum(number.product(square, first), 1.0)
    start = number.sum(start, number.product(fourth_power, second))
    return number.sum(start, number.product(number.product(fourth_power, square), end))


class _Doubles:
    """A writer of sums and products of doubles."""

    def __init__(self, writer: RandomWriter) -> None:
        self._writer = writer

    def sum(self, value: str, other: str | float) -> str:
        return self._writer.combine("AddV2", _DOUBLE, value, other)

    def product(self, value: str, other: str | float) -> str:
        return self._writer.combine("Mul", _DOUBLE, value, other)


# Writes what a node draws with the given operands.
_Numbers: TypeAlias = Callable[[RandomWriter, Draw], str]


def _by(operands: Callable[[RandomWriter], Draw], numbers: _Numbers) -> Write:
    return lambda writer: [numbers(writer, operands(writer))]


def _bits_of_dtype(writer: RandomWriter, draw: Draw) -> str:
    return writer.bits(draw, writer.dtype())


def _integers(writer: RandomWriter, draw: Draw) -> str:
    dtype = writer.dtype()
    operands = (draw.shape, draw.key, draw.counter, draw.alg, *writer.inputs[-2:])
    return writer.add("StatelessRandomUniformIntV2", *operands, dtype=dtype, Tshape=draw.shape_type)


def _truncated_normal(writer: RandomWriter, draw: Draw) -> str:
    operands = (draw.shape, draw.key, draw.counter, draw.alg)
    return writer.add(
        "StatelessTruncatedNormalV2", *operands, dtype=writer.dtype(), Tshape=draw.shape_type
    )


_WRITES: Mapping[str, Write] = {
    "StatefulStandardNormalV2": _by(_of_generator, _normal),
    "StatefulTruncatedNormal": _by(_of_generator, _truncated_normal),
    "StatefulUniform": _by(_of_generator, _uniform),
    "StatefulUniformFullInt": _by(_of_generator, _bits_of_dtype),
    "StatefulUniformInt": _by(_of_generator, _integers),
    "StatelessRandomGetKeyCounter": _key_and_counter,
    "StatelessRandomGetKeyCounterAlg": _key_counter_and_algorithm,
    "StatelessRandomNormal": _by(_of_seeds, _normal),
    "StatelessRandomNormalV2": _by(_of_key, _normal),
    "StatelessRandomUniform": _by(_of_seeds, _uniform),
    "StatelessRandomUniformFullInt": _by(_of_seeds, _bits_of_dtype),
    "StatelessRandomUniformInt": _by(_of_seeds, _integers),
    "StatelessRandomUniformV2": _by(_of_key, _uniform),
}

_OTHER_SEEDING = "XLA makes another key of the seeds"
_OTHER_FLOATS = "XLA makes other numbers of the random bits"
_OTHER_STATE = "XLA draws other numbers, and leaves another state in the generator"
_DISCARDS = "XLA draws other numbers: TensorFlow draws again where a number is out of range"
_OTHER_METHOD = "XLA draws by another method"
_OWN_STREAM = "XLA draws arbitrary numbers, which do not follow from the seeds"

# Why the numbers of an op differ that goes to the host.
_STATELESS_ON_HOST = {
    "StatelessMultinomial": _OTHER_METHOD,
    "StatelessParameterizedTruncatedNormal": _OTHER_METHOD,
    "StatelessTruncatedNormal": _DISCARDS,
    "StatelessTruncatedNormalV2": _DISCARDS,
}
# Ops with two seeds among their attributes, which go to the host if one of these is not zero.
_SEEDED = frozenset(
    {"Multinomial", "ParameterizedTruncatedNormal", "RandomShuffle", "RandomStandardNormal"}
    | {"RandomUniform", "RandomUniformInt", "TruncatedNormal"}
)
# Other such ops, for which XLA has no kernels.
_SEEDED_ON_HOST = frozenset(
    {"RandomCrop", "RandomGamma", "RandomPoisson", "RandomPoissonV2", "SampleDistortedBoundingBox"}
    | {"SampleDistortedBoundingBoxV2", "FractionalAvgPool", "FractionalMaxPool"}
    | {"AllCandidateSampler", "FixedUnigramCandidateSampler", "LearnedUnigramCandidateSampler"}
    | {"LogUniformCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"}
    | {"UniformCandidateSampler"}
)


class Row(NamedTuple):
    """Why an op's numbers differ, and what is written in its place; None if it goes to the host."""

    reason: str
    replacement: Callable[[Writer], tuple[str, ...]] | None


def _replacement(write: Write) -> Callable[[Writer], tuple[str, ...]]:
    def replacement(writer: Writer) -> tuple[str, ...]:
        own = RandomWriter(writer.node)
        results = write(own)
        writer.nodes.extend(own.nodes)
        return tuple(results)

    return replacement


def _reason(op: str) -> str:
    if op.startswith("Stateful"):
        return _OTHER_STATE
    return _OTHER_FLOATS if op.endswith("V2") else _OTHER_SEEDING


ROWS: Mapping[str, Row] = {
    **{op: Row(_reason(op), _replacement(write)) for op, write in _WRITES.items()},
    **{op: Row(reason, None) for op, reason in _STATELESS_ON_HOST.items()},
    **{op: Row(_OWN_STREAM, None) for op in _SEEDED},
}


def _are_those_of_graph_mode() -> bool:
    """Return whether the user wants programs for the CPU to draw graph mode's numbers."""
    return settings.GRAPH == settings.current.semantics == settings.current.random_numbers


def differ(node: NodeDef, nodes: Mapping[str, Any]) -> bool:
    """Return whether a node of `ROWS` would draw other numbers; `nodes` are those around it."""
    if not _are_those_of_graph_mode():
        return False
    return _is_seeded(node) if node.op in _SEEDED else not _is_threefry(node, nodes)


def _is_seeded(node: NodeDef) -> bool:
    """Return whether a node with two seeds draws the same numbers in each run of a program."""
    return bool(node.attr["seed"].i or node.attr["seed2"].i)


def _is_threefry(node: NodeDef, nodes: Mapping[str, Any]) -> bool:
    """Return whether a node draws by an algorithm that TensorFlow's CPU kernels lack."""
    inputs = defs.data_inputs(node)
    names = [argument.name for argument in op_kinds.op_def(node.op).input_arg]
    for name in ("alg", "algorithm"):
        source = nodes.get(defs.source(inputs[names.index(name)])) if name in names else None
        if (known := defs.constant(source)) is not None:
            return bool(known == _THREEFRY)
    return False


def separate(library: FunctionDefLibrary, entry: str) -> set[str]:
    """Give each call of a function its own copy of the states in it; return changed functions."""
    seeded = defs.all_nodes(library, _SEEDED | _SEEDED_ON_HOST)
    if not (_are_those_of_graph_mode() and any(True for _ in seeded)):
        return set()
    functions = defs.by_name(library)
    drawing = Effects(functions, _is_seeded, _SEEDED | _SEEDED_ON_HOST)
    if not drawing.of_function(entry):
        return set()
    changed, called, entered = set[str](), set[str](), list[str]()

    def own(name: str) -> str:
        """Return the name of a function, or of a copy of it if it was called before."""
        if not drawing.of_function(name):
            return name
        if name in called:
            if _has_one_state(functions[name]):
                return name
            name = _copy(library, functions, name, len(called))
        called.add(name)
        entered.append(name)
        return name

    def redirect_calls(caller: str) -> list[str]:
        """Give the calls of a function their own copies; return what it is the first to call."""
        entered.clear()
        for node in defs.calls_in(functions[caller], functions):
            inlined = node.op in functions or node.op in op_kinds.CALLING_OPS
            if inlined and defs.redirect(node, functions, own):
                changed.add(caller)
        return entered

    solve([entry], redirect_calls)
    return changed


def _has_one_state(function: FunctionDef) -> bool:
    """Return whether graph mode does not inline a function, so that all its calls share states."""
    # Must-compile functions have the attribute, too. Graph mode would inline them.
    return protos.is_true(function, _NO_INLINING) and not defs.is_compiled(function)


def _copy(library: FunctionDefLibrary, functions: dict[str, Any], name: str, number: int) -> str:
    """Add a copy of a function; return its name, which has a digest of the number."""
    function = library.function.add()
    function.CopyFrom(functions[name])
    function.signature.name = f"{name}_{number}"
    function.signature.name = name + function_names.digest_of_functions([function])
    functions[function.signature.name] = function
    return str(function.signature.name)
