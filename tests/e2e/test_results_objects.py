"""What no tensor can hold of what a function may return, and what NumPy can convert."""

import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.helpers import (
    MODES,
    NUMPY_OPS,
    OPS,
    assert_same,
    jitted,
    outcome,
    plain,
    returning,
    to_numpy,
)

X = tf.constant([1.0, 2.0])
FLOAT = tf.float32
InvalidArgumentError = tf.errors.InvalidArgumentError


UNSUPPORTED = {
    "objects": np.array([object(), object()]),
    "strings": np.array(["a", "b"]),
    "bytes": np.array([b"a", b"b"]),
    "dates": np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"),
    "durations": np.array([1, 2], "timedelta64[s]"),
    "records": np.zeros(2, [("a", np.float32)]),
    "long doubles": np.zeros(2, np.longdouble),
    "dict": {"a": 1},
    "set": {1, 2},
    "generator": (i for i in range(2)),
    "ragged list": [[1.0], [1.0, 2.0]],
    "class": object,
}


@pytest.mark.parametrize("op", NUMPY_OPS)
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_values_fail_as_without_xla(op: Any, name: str) -> None:
    value = UNSUPPORTED[name]
    program = returning(op, lambda: [value], [FLOAT], [[2]])
    expected = outcome(plain(program))
    assert issubclass(expected, tf.errors.OpError)
    assert outcome(jitted(program)) is expected


def test_an_array_of_objects_is_shown_in_a_sentence() -> None:
    objects = np.array([object(), None])
    program = jitted(returning(tf.numpy_function, lambda: [objects], [FLOAT], [[2]]))
    with pytest.raises(tf.errors.InternalError, match=r"dtype=object\). This is tf\.numpy_func"):
        program()


class Own:
    pass


OBJECTS: dict[str, Callable[[], Any]] = {
    "Own": Own,
    "object": object,
    "dict": dict,
    "datetime.date": lambda: datetime.date(2020, 1, 1),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "decimal.Decimal": lambda: decimal.Decimal(1),
    "int": lambda: 2**70,
    "NoneType": lambda: None,
    "RaggedTensor": lambda: tf.ragged.constant([[1.0], [1.0, 2.0]]),
}


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_cannot_be_results_are_named(build: Any, op: Any, name: str) -> None:
    value = OBJECTS[name]()
    for returned in ([value], ["a", value]):
        array = np.empty(len(returned), object)
        array[:] = returned
        for result in ([value], [array]):
            program = returning(op, lambda result=result: result, [FLOAT], [[2]])
            with pytest.raises(tf.errors.InternalError, match=f"Unsupported object type {name}"):
                build(program)()


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", NUMPY_OPS)
def test_an_array_of_a_lone_none_is_no_value(build: Any, op: Any) -> None:
    program = returning(op, lambda: np.array(None), [FLOAT], [[]])
    with pytest.raises(InvalidArgumentError, match="returns 0 values, but expects to see 1 values"):
        build(program)()


@pytest.mark.parametrize("name", sorted(set(UNSUPPORTED) - {"dates", "durations", "generator"}))
def test_unsupported_values_of_py_function(name: str) -> None:
    value = UNSUPPORTED[name]
    program = returning(tf.py_function, lambda: [value], [FLOAT], [[2]])
    assert_same(outcome(jitted(program)), outcome(plain(program)))


class Convertible:
    """What NumPy asks for its array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self.array is None:
            raise ValueError("no array today")
        return self.array


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_objects_that_numpy_can_convert(build: Any, op: Any) -> None:
    for array in (np.array([1, 2], np.float32), None):
        value = Convertible(array)
        run = build(returning(op, lambda value=value: value, [FLOAT], [[2]]))
        if array is not None:
            assert_same(to_numpy(run()), [array])
            continue
        with pytest.raises(InvalidArgumentError, match="no array today"):
            run()
