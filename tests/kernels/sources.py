"""The kernels that make bounded sizes out of inputs without bounded sizes.

XLA writes a bounded size as `<=4`. Each call is lowered with its integer inputs known to XLA, and
then with each of them in turn the value of a loop, which XLA cannot know.
"""
# ruff: noqa: T201 - it prints its report

import collections
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import catalogue, registry, running
from tests.kernels.call import Call

BATCH = 60
_LAYOUT = re.compile(r"entry_computation_layout=\{\(.*?\)->(.*)\}$", re.MULTILINE)
_SHAPE = re.compile(r"[a-z]\w*\[([^\]]*)\]")
_MARK = "of_result_"


@dataclasses.dataclass
class Found:
    """The findings about one op.

    Attributes:
      always: the results that are bounded with all integer inputs known.
      unknown: those that are bounded because an input is not known: the number of the input, and
        of the result.
    """

    always: set[int] = dataclasses.field(default_factory=set)
    unknown: set[tuple[int, int]] = dataclasses.field(default_factory=set)


def find(calls: list[Call]) -> dict[str, Found]:
    found: dict[str, Found] = collections.defaultdict(Found)
    for begin in range(0, len(calls), BATCH):
        for call, bounded in _known(calls[begin : begin + BATCH]):
            found[call.op].always.update(bounded)
    return found


def find_unknown(calls: list[Call], found: dict[str, Found]) -> None:
    """Add what is bounded where an integer input is not known."""
    for call in calls:
        what = found[call.op]
        for number in _integer_inputs(call):
            results = _marked(_in_loop(call, number)) - what.always
            what.unknown |= {(number, result) for result in results}


def sample(seed: int = 0, *, most: int = 4) -> list[Call]:
    """Return a few calls of each op, whose attributes and numbers of dimensions differ."""
    kept: dict[str, dict[Any, Call]] = collections.defaultdict(dict)
    for call in sorted(catalogue.calls(seed), key=_rank):
        calls = kept[call.op]
        if len(calls) < most:
            calls.setdefault(_likeness(call), call)
    return [call for calls in kept.values() for call in calls.values()]


def report() -> None:
    calls = sample(most=12)
    found = find(calls)
    find_unknown(sample(most=3), found)
    for op, what in sorted(found.items()):
        parts = [f"result {n}" for n in sorted(what.always)]
        parts += [f"result {n} where input {i} is not known" for i, n in sorted(what.unknown)]
        print(f"{op}: {'; '.join(parts)}\n" if parts else "", end="")
    print("no calls:", *sorted(set(registry.ops()) - set(found)))


def _rank(call: Call) -> tuple[bool, bool]:
    """Return what is lower for the op alone, and for dtypes that XLA refuses less often."""
    common = (np.float32, np.int32, np.int64, np.bool_)
    rare = any(np.asarray(array).dtype not in common for array in call.flat())
    return call.function is not None, rare


def _likeness(call: Call) -> Any:
    given = sorted(call.attrs.items())
    attrs = tuple((name, str(v)) for name, v in given if not isinstance(v, tf.DType))
    arrays = [np.asarray(array) for array in call.flat()]
    ranks = tuple((array.ndim, array.size > 0, array.dtype.kind in "iu") for array in arrays)
    return attrs, ranks, call.function is None or call.note


def _known(calls: list[Call]) -> Iterator[tuple[Call, list[int]]]:
    """Yield each call with its bounded results; leave out those that XLA refuses."""
    function, arguments = running.jitted(calls), running.arguments(calls)
    try:
        text = _lowered(function, arguments)
    except Exception:
        if len(calls) > 1:
            half = len(calls) // 2
            yield from _known(calls[:half])
            yield from _known(calls[half:])
        return
    sizes = iter(result_sizes(text))
    results = function.get_concrete_function(*arguments).structured_outputs
    for call, made in zip(calls, results, strict=True):
        of_one = [next(sizes) for _ in made]
        yield call, [n for n, dims in enumerate(of_one) if "<=" in dims]


def result_sizes(text: str) -> list[str]:
    """Return the dimensions of each result of a program, as they are written."""
    layout = _LAYOUT.search(text)
    assert layout, text[:300]
    return _SHAPE.findall(layout[1])


def _lowered(compiled: Any, arguments: list[Any]) -> str:
    text: str = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")
    return text


def _integer_inputs(call: Call) -> list[int]:
    return [
        number
        for number, array in enumerate(call.flat())
        if np.asarray(array).dtype in (np.int32, np.int64) and np.size(array) and np.ndim(array) < 3
    ]


def _in_loop(call: Call, number: int) -> str:
    """Return the program with one input the value of a loop, or nothing if XLA refuses it."""

    def looped(*tensors: Any) -> Any:
        def step(i: Any, value: Any, total: Any) -> Any:
            inputs = [*tensors[:number], value, *tensors[number + 1 :]]
            for result, tensor in enumerate(call.run(inputs)):
                total += _consumed(tensor, result)
            return i + 1, value + tf.cast(i, value.dtype), total

        zero = tf.constant(0)
        shapes = (zero.shape, tensors[number].shape, zero.shape)
        state = (zero, tensors[number], zero)
        return tf.while_loop(lambda i, *_: i < 2, step, state, shape_invariants=shapes)[2]

    try:
        compiled = tf.function(looped, jit_compile=True, autograph=False)
        return _lowered(compiled, [tf.constant(array) for array in call.flat()])
    except Exception:
        return ""


def _consumed(tensor: Any, result: int) -> Any:
    """Return a number made of a result, by an op whose name XLA keeps."""
    with tf.name_scope(f"{_MARK}{result}_"):
        if tensor.dtype.is_bool:
            return tf.reduce_sum(tf.cast(tensor, tf.int32))
        real = tf.math.real(tensor) if tensor.dtype.is_complex else tensor
        return tf.cast(tf.reduce_sum(real), tf.int32)


def _marked(text: str) -> set[int]:
    lines = [line for line in text.splitlines() if "<=" in line]
    names = [re.search(rf'op_name="[^"]*{_MARK}(\d+)_', line) for line in lines]
    return {int(name[1]) for name in names if name}
