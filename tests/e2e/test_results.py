"""contract.md, "Results": what a function may return and what becomes of it."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.e2e.unchanged_results import VALUES, outcome
from tests.support.helpers import (
    MODES,
    assert_same,
    each_op,
    failure,
    gradient_of,
    jitted,
    plain,
    returning,
    to_numpy,
)

X = tf.constant([1.0, 2.0])
FLOAT = tf.float32
# Of these values a compiled program says otherwise what is wrong.
SAID_OTHERWISE = {
    *("array of texts", "list of empty lists", "dates", "durations", "long doubles"),
    "ragged list",
}


# What the functions of all programs return, changed from one value to the next.
_returned: list[Any] = []


@functools.cache
def program_of(mode: Any, op: Any, tout: Any, shapes: Any) -> Any:
    def program() -> Any:
        results = tf.nest.flatten(op(lambda _: _returned[-1](), [X], tout or []))
        pairs = zip(results, shapes, strict=False) if tout else []
        return [tf.ensure_shape(result, shape) for result, shape in pairs]

    return mode(program)


@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function])
@pytest.mark.parametrize("value", VALUES)
def test_values_become_what_they_become_in_plain_graphs(op: Any, value: str) -> None:
    """Those are compared with stock TensorFlow's in test_unchanged.py."""
    _returned[:] = [VALUES[value]]
    touts: list[Any] = [FLOAT, tf.int32, (FLOAT, FLOAT), ()]
    for tout in touts:
        expected = outcome(program_of(plain, op, tout, (None, None)))
        shapes = [result[1] for result in expected[1:]] if expected[0] == "list" else [(2,), (2,)]
        actual = outcome(program_of(jitted, op, tout, tuple(shapes)))
        if expected[0] == "list":
            assert actual == expected
        elif "expects to see" not in actual[1] or "expects to see" in expected[1]:
            # Otherwise results are counted before any of them is looked at.
            assert actual[0] == expected[0]
            assert expected[1].splitlines()[0] in actual[1] or value in SAID_OTHERWISE


@pytest.mark.parametrize("build", MODES)
def test_a_py_function_has_the_gradient_of_what_is_taken(build: Any) -> None:
    def square(x: tf.Tensor) -> Any:
        y = tf.py_function(lambda x: (x * x, x), [x], FLOAT)
        y.set_shape([2])
        return y

    np.testing.assert_array_equal(build(lambda x: gradient_of(square, x))(X), 2.0 * X)


def test_a_callback_returns_neither_more_nor_fewer_values() -> None:
    spec = tf.TensorSpec([2], FLOAT)
    for kind in ("numpy", "eager"):
        for returned in (lambda x: (x, x), lambda x: ()):
            call = hostcall.callback(returned, result=spec, kind=kind)
            for build in MODES:
                assert "values, but expects to see 1 " in str(failure(build(call), X))


def layouts() -> dict[str, np.ndarray]:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    unaligned = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(np.float32)
    record = np.zeros(4, [("pad", np.int8), ("value", np.float32)])
    record["value"] = [1, 2, 3, 4]
    return {
        "c": base,
        "fortran": np.asfortranarray(base),
        "transposed": base.transpose(2, 0, 1),
        "strided": base[:, ::2, 1::2],
        "reversed": base[::-1, :, ::-1],
        "broadcast": np.broadcast_to(base[0, 0], (3, 4)),
        "zero strides": np.lib.stride_tricks.as_strided(base, (5,), (0,)),
        "unaligned": unaligned,
        "field": record["value"],
        "read-only": np.frombuffer(base.tobytes(), np.float32),
        "big-endian": base.astype(">f4"),
        "big-endian strided": base.astype(">f4")[:, ::-2],
        "big-endian rank 0": np.array(2.5, ">f4"),
        "rank 0": np.array(2.5, np.float32),
        "scalar": np.float32(2.5),
        "zero size": base[:, :0],
        "zero size fortran": np.asfortranarray(np.zeros([0, 3], np.float32)),
        "one": base[:1, :1, :1],
        "masked": np.ma.masked_array(base[0], mask=False),
        "matrix": base[0].view(np.matrix),
        "subclass": base[0].view(np.recarray),
    }


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("build", MODES)
@each_op
def test_every_layout_arrives_right(build: Any, op: Any) -> None:
    values = layouts()
    shapes = [value.shape for value in values.values()]
    program = returning(op, lambda: list(values.values()), [FLOAT] * len(values), shapes)
    results = dict(zip(values, to_numpy(build(program)()), strict=True))
    for name, value in values.items():
        assert_same({name: results[name]}, {name: np.array(value, np.float32, order="C")})
    # And alone, for a lone value takes another way.
    for value in values.values():
        alone = build(returning(op, lambda value=value: value, FLOAT, [value.shape]))
        assert_same(to_numpy(alone()), [np.array(value, np.float32, order="C")])


@each_op
@pytest.mark.parametrize("dtype", [FLOAT, tf.int32, tf.bfloat16])
@pytest.mark.parametrize("value", [[], [[]]])
def test_an_empty_list_takes_the_declared_dtype(op: Any, dtype: Any, value: Any) -> None:
    (result,) = jitted(returning(op, lambda: value, dtype, [[0]]))()
    assert result.dtype == dtype
    assert result.shape == [0]
