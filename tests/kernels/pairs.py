"""Pairs of ops, which XLA's simplifications may make into something else than each op by itself.

Every pair of ops that leave the shape of a vector, or reduce it, is compiled on values at the edges
of each dtype, by stock TensorFlow or beside a call of Python with hostcall, and compared with
eager mode, op by op. What eager mode's kernels compute otherwise by the place of a number is no
difference.
"""
# ruff: noqa: T201 - it prints its report

import collections
import contextlib
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.kernels import difference, running
from tests.kernels.call import ARRAY, Call
from tests.kernels.data import words
from tests.kernels.edges import edges
from tests.support.stress.processes import Worker

STOCK, HOSTCALL = "stock", "hostcall"
_PREPARATION = {STOCK: "", HOSTCALL: "import hostcall"}
_DTYPES = words("float32 int32 bfloat16 int8 float64 half int64 uint8 bool complex64 complex128")
_BATCH = 40
_SECONDS_A_BATCH = 600.0
_LENGTH = 19  # of the vectors with one value
# The ops that look at more than one number.
_WHOLE = words(
    "LogicalAnd ReverseV2 ConcatV2 Pad StridedSlice Tile Cumsum Sum Max Min Prod ArgMax All Softmax"
)

Function = Callable[[Any], Any]


def _like(x: Any, value: float) -> Any:
    return tf.constant(value, x.dtype)


_OPS: dict[str, Function] = {
    "Neg": lambda x: -x,
    "Abs": tf.abs,
    "Sign": tf.sign,
    "Square": tf.square,
    "Sqrt": tf.sqrt,
    "Rsqrt": tf.math.rsqrt,
    "Exp": tf.exp,
    "Log": tf.math.log,
    "Tanh": tf.tanh,
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "Floor": tf.floor,
    "Round": tf.round,
    "Reciprocal": tf.math.reciprocal,
    "AddV2 1": lambda x: x + _like(x, 1),
    "AddV2 self": lambda x: x + x,
    "Sub 1": lambda x: x - _like(x, 1),
    "Sub from 0": lambda x: _like(x, 0) - x,
    "Mul 3": lambda x: x * _like(x, 3),
    "Mul 0": lambda x: x * _like(x, 0),
    "Mul self": lambda x: x * x,
    "RealDiv 3": lambda x: tf.realdiv(x, _like(x, 3)),
    "RealDiv of 1": lambda x: tf.realdiv(_like(x, 1), x),
    "FloorDiv 3": lambda x: x // _like(x, 3),
    "FloorMod 3": lambda x: x % _like(x, 3),
    "TruncateDiv 3": lambda x: tf.truncatediv(x, _like(x, 3)),
    "Pow 2": lambda x: tf.pow(x, _like(x, 2)),
    "Maximum 1": lambda x: tf.maximum(x, _like(x, 1)),
    "Maximum of 1": lambda x: tf.maximum(_like(x, 1), x),
    "Minimum 2": lambda x: tf.minimum(x, _like(x, 2)),
    "Less 0": lambda x: x < _like(x, 0),
    "GreaterEqual 0": lambda x: x >= _like(x, 0),
    "Greater 1": lambda x: x > _like(x, 1),
    "Equal self": lambda x: tf.equal(x, x),
    "NotEqual self": lambda x: tf.not_equal(x, x),
    "IsNan": tf.math.is_nan,
    "IsFinite": tf.math.is_finite,
    "LogicalNot": tf.logical_not,
    "LogicalAnd": lambda x: tf.logical_and(x, tf.reverse(x, [0])),
    "Invert": tf.bitwise.invert,
    "LeftShift 2": lambda x: tf.bitwise.left_shift(x, _like(x, 2)),
    "RightShift 1": lambda x: tf.bitwise.right_shift(x, _like(x, 1)),
    "BitwiseAnd 7": lambda x: tf.bitwise.bitwise_and(x, _like(x, 7)),
    "Cast to float32": lambda x: tf.cast(x, tf.float32),
    "Cast to int32": lambda x: tf.cast(x, tf.int32),
    "Cast to int8": lambda x: tf.cast(x, tf.int8 if x.dtype.is_integer else tf.int32),
    "Cast to int64": lambda x: tf.cast(x, tf.int64),
    "Cast to bool": lambda x: tf.cast(x, tf.bool),
    "Cast to bfloat16": lambda x: tf.cast(x, tf.bfloat16),
    "ClipByValue": lambda x: tf.clip_by_value(x, _like(x, 1), _like(x, 3)),
    "SelectV2": lambda x: tf.where(x > _like(x, 1), x, _like(x, 0)),
    "Mul of a mask": lambda x: x * tf.cast(x > _like(x, 1), x.dtype),
    "Conj": tf.math.conj,
    "Real": tf.math.real,
    "ComplexAbs": lambda x: tf.raw_ops.ComplexAbs(x=x),
    "ReverseV2": lambda x: tf.reverse(x, [0]),
    "ConcatV2": lambda x: tf.concat([x, x], 0),
    "Pad": lambda x: tf.pad(x, [[1, 2]]),
    "StridedSlice": lambda x: x[1::2],
    "Tile": lambda x: tf.tile(x, [2]),
    "Cumsum": tf.cumsum,
    "Sum": tf.reduce_sum,
    "Max": tf.reduce_max,
    "Min": tf.reduce_min,
    "Prod": tf.reduce_prod,
    "ArgMax": lambda x: tf.argmax(x),
    "All": tf.reduce_all,
    "Softmax": tf.nn.softmax,
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A pair of ops, on the edges of a dtype."""

    first: str
    second: str
    dtype: str

    def values(self) -> Any:
        return edges(tf.as_dtype(self.dtype))

    def run(self, x: Any) -> Any:
        return _OPS[self.second](_OPS[self.first](x))

    def call(self) -> Call:
        return Call(
            self.second, (self.values(),), {}, self.run, 64, ARRAY, f"{self.first}, {self.second}"
        )


def pairs(dtype: str) -> list[Pair]:
    """Return the pairs that TensorFlow's kernels take, in a vector of the dtype."""
    x = tf.TensorSpec([None], tf.as_dtype(dtype))
    first = [name for name in _OPS if (_result(_OPS[name], x) is not None)]
    found = []
    for name in first:
        between = _result(_OPS[name], x)
        found += [
            Pair(name, other, dtype) for other in _OPS if _result(_OPS[other], between) is not None
        ]
    return found


def _result(function: Function, spec: Any) -> Any:
    """Return the spec of what a function returns, or None if it does not take the argument."""
    return _result_of(function, spec.dtype, tuple(spec.shape))


@functools.cache
def _result_of(function: Function, dtype: Any, shape: Any) -> Any:
    with tf.Graph().as_default():
        try:
            result = function(tf.compat.v1.placeholder(dtype, shape))
        except Exception:
            return None
    return tf.TensorSpec(result.shape, result.dtype)


def judged(chosen: list[list[str]], mode: str) -> list[Any]:
    """Return the differences of pairs: their numbers, and what differs."""
    made = [Pair(*names) for names in chosen]
    expected: dict[int, Any] = {}
    for number, pair in enumerate(made):
        with contextlib.suppress(Exception):  # a pair without a kernel of TensorFlow's
            expected[number] = running.on_cpu(pair.call())
    found: list[Any] = []
    _compare(made, expected, mode, found)
    return found


def _compare(made: list[Pair], expected: dict[int, Any], mode: str, found: list[Any]) -> None:
    numbers = list(expected)
    if not numbers:
        return
    calls = [made[number].call() for number in numbers]
    try:
        actual = _compiled(calls, mode)
    except Exception as error:
        if len(numbers) == 1:
            found.append([numbers[0], difference.REFUSED, f"{type(error).__name__}: {error}"[:160]])
            return
        half = len(numbers) // 2
        for part in (numbers[:half], numbers[half:]):
            _compare(made, {n: expected[n] for n in part}, mode, found)
        return
    for number, call, results in zip(numbers, calls, actual, strict=True):
        differences = difference.compare(call, expected[number], results)
        if differences and expected[number][0].shape == results[0].shape:
            merged = _but_for_chance(made[number], call, expected[number][0], results[0])
            differences = difference.compare(call, [merged], results)
        found.extend([number, one.what, one.text] for one in differences)


def _but_for_chance(pair: Pair, call: Call, expected: Any, actual: Any) -> Any:
    """Return what is expected, with what was found where numbers at other places give it."""
    others = [expected]
    for between in _by_place(pair.first, tf.constant(pair.values())):
        others += [result.numpy() for result in _by_place(pair.second, between)]
    merged, found = expected.ravel().copy(), actual.ravel()
    for n in range(found.size):
        one = slice(n, n + 1)
        if any(not difference.compare(call, [o.ravel()[one]], [found[one]]) for o in others):
            merged[n] = found[n]
    return merged.reshape(expected.shape)


def _by_place(name: str, x: Any) -> list[Any]:
    """Return the results of an op, and of its numbers each alone and each among equal ones."""
    function = _OPS[name]
    results = [function(x)]
    if x.shape.rank and name not in _WHOLE:
        results.append(tf.concat([function(x[n : n + 1]) for n in range(x.shape[0])], 0))
        results.append(function(tf.repeat(x, _LENGTH))[_LENGTH // 2 :: _LENGTH])
    return results


def _compiled(calls: list[Call], mode: str) -> Any:
    return running.by_xla(calls) if mode == STOCK else running.beside_python(calls)


def run(seed: int, only: set[str], modes: list[str], most: int = 600) -> None:
    """Try a sample of the pairs of each dtype in processes that may end, and print what differs."""
    chosen: list[Pair] = []
    for dtype in _DTYPES:
        every = [p for p in pairs(dtype) if not only or only & {p.first, p.second}]
        picked = random.Random(seed).sample(every, min(most, len(every)))
        print(f"{dtype}: {len(picked)} of {len(every)} pairs", flush=True)
        chosen += picked
    for mode in modes:
        counts: collections.Counter[str] = collections.Counter()
        with contextlib.closing(Worker(_PREPARATION[mode])) as worker:
            for begin in range(0, len(chosen), _BATCH):
                for pair, what, text in _judge(worker, chosen[begin : begin + _BATCH], mode):
                    counts[what] += 1
                    print(
                        f"{mode}: {what} | {pair.first}, {pair.second} | {pair.dtype} | {text}",
                        flush=True,
                    )
        said = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(f"== {mode}: of {len(chosen)} pairs differ: {said or 'none'}", flush=True)


def _judge(worker: Worker, batch: list[Pair], mode: str) -> list[tuple[Pair, str, str]]:
    names = [[pair.first, pair.second, pair.dtype] for pair in batch]
    try:
        found = worker.run(judged, names, mode, limit=_SECONDS_A_BATCH)
    except AssertionError as error:
        if not str(error).startswith("ended with"):
            raise
        if len(batch) == 1:
            return [(batch[0], difference.CRASH, "")]
        return [each for pair in batch for each in _judge(worker, [pair], mode)]
    return [(batch[number], what, text) for number, what, text in found]
