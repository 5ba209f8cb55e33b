"""Running calls by TensorFlow's CPU kernels and by XLA, many in one program."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import difference
from tests.kernels.call import Call
from tests.kernels.difference import Difference

Verdicts = Iterator[tuple[int, list[Difference]]]


def on_cpu(call: Call) -> list[Any]:
    tensors = [tf.constant(array) for array in call.flat()]
    return [_array(result) for result in call.run(tensors)]


def by_xla(calls: list[Call]) -> list[list[Any]]:
    results = jitted(calls)(*arguments(calls))
    return [[_array(result) for result in of_one] for of_one in results]


def beside_python(calls: list[Call]) -> list[list[Any]]:
    """Run calls by XLA in a program that calls Python, which hostcall has taken."""
    taken = jitted(calls).python_function

    def beside(*tensors: Any) -> Any:
        one = tf.numpy_function(np.negative, [tf.constant(1.0)], tf.float32)
        return taken(*tensors), tf.ensure_shape(one, [])

    function: Any = tf.function(beside, jit_compile=True, autograph=False)
    return [[_array(result) for result in each] for each in function(*arguments(calls))[0]]


def arguments(calls: list[Call]) -> list[Any]:
    return [tf.constant(array) for call in calls for array in call.flat()]


def jitted(calls: list[Call]) -> Any:
    """Return one compiled function for all the calls, which takes `arguments`."""

    def together(*tensors: Any) -> list[list[Any]]:
        rest = iter(tensors)
        return [call.run(list(itertools.islice(rest, len(call.flat())))) for call in calls]

    return tf.function(together, jit_compile=True, autograph=False)


def judge(calls: dict[int, Call]) -> Verdicts:
    """Yield the differences of each call, by its number."""
    expected: dict[int, list[Any]] = {}
    for number, call in calls.items():
        try:
            expected[number] = on_cpu(call)
        except Exception as error:
            yield number, [_without_cpu(call, error)]
    yield from _judge({number: calls[number] for number in expected}, expected)


def _array(tensor: Any) -> Any:
    # A scalar of a dtype that is not NumPy's own knows no more that it is one.
    return np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype)


def _judge(calls: dict[int, Call], expected: dict[int, list[Any]]) -> Verdicts:
    if not calls:
        return
    try:
        actual = by_xla(list(calls.values()))
    except Exception as error:
        yield from _halves(calls, expected, error)
        return
    for (number, call), results in zip(calls.items(), actual, strict=True):
        found = difference.compare(call, expected[number], results)
        if found and len(calls) > 1:
            # Without other calls beside.
            found = difference.compare(call, expected[number], by_xla([call])[0])
            found = found or [Difference(difference.VALUE, text="only beside other calls")]
        yield number, found


def _halves(calls: dict[int, Call], expected: dict[int, list[Any]], error: Exception) -> Verdicts:
    numbers = list(calls)
    if len(numbers) == 1:
        yield numbers[0], [Difference(difference.REFUSED, text=_first_line(error))]
        return
    half = len(numbers) // 2
    for part in (numbers[:half], numbers[half:]):
        yield from _judge({number: calls[number] for number in part}, expected)


def _without_cpu(call: Call, error: Exception) -> Difference:
    try:
        by_xla([call])
    except Exception:
        return Difference(difference.CPU_REFUSES, text=_first_line(error))
    return Difference(difference.RAISES, text=_first_line(error))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
