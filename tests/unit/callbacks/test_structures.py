"""hostcall._callbacks.structures: nested inputs and results against the flat lists of an op."""

import collections
from typing import Any

import pytest
import tensorflow as tf

from hostcall._callbacks.structures import Outputs, read_inputs

FLOAT, INT = tf.float32, tf.int32
Pair = collections.namedtuple("Pair", ["left", "right"])
A, B, C = tf.constant(1.0), tf.constant([2.0, 3.0]), tf.constant([4])


def ignored() -> None: ...


@pytest.mark.parametrize("eager", [True, False])
def test_nested_inputs(eager: bool) -> None:
    given = [{"b": A, "a": [B, Pair(C, A)]}, B, ()]
    inputs = read_inputs(given, eager, pack_lists=False)
    assert inputs.count == 3
    assert inputs.nested
    assert [id(tensor) for tensor in inputs.flat] == [id(t) for t in (B, C, A, A, B)]
    expected = [{"a": [0, Pair(1, 2)], "b": 3}, 4, ()]
    assert inputs.pack(range(5)) == expected
    assert inputs.pack_specs(list("vwxyz")) == [{"a": ["v", Pair("w", "x")], "b": "y"}, "z", ()]


def test_lists_are_packed_where_tensorflow_can() -> None:
    inputs = read_inputs(
        [[A, 5.0], [1, 2], (B, B), [A, B], [{"x": A}], Pair(A, A), Pair(A, B)], eager=False
    )
    shapes = [tensor.shape.as_list() for tensor in inputs.flat[:3]]
    assert shapes == [[2], [2], [2, 2]]
    # Of different shapes or with a dict: these stay structures.
    assert inputs.pack(range(9)) == [0, 1, 2, [3, 4], [{"x": 5}], 6, Pair(7, 8)]


@pytest.mark.parametrize(
    ("tout", "packed"),
    [
        (FLOAT, 0),
        ("float32", 0),
        ([FLOAT], [0]),
        ((FLOAT,), [0]),
        ([FLOAT, INT], [0, 1]),
        ((FLOAT, INT), [0, 1]),
        ([], []),
        ({"b": FLOAT, "a": INT}, {"a": 0, "b": 1}),
        ([FLOAT, [INT, FLOAT]], [0, [1, 2]]),
        (Pair(FLOAT, INT), Pair(0, 1)),
        ({"x": [FLOAT, {"y": INT}]}, {"x": [0, {"y": 1}]}),
    ],
)
def test_results_are_packed_like_tout(tout: Any, packed: Any) -> None:
    outputs = Outputs(tout)
    count = len(tf.nest.flatten(packed))
    assert len(outputs.dtypes) == len(outputs.specs) == count
    result = outputs.pack(range(count))
    assert result == packed
    assert type(result) is type(packed)
    assert outputs.unpack(result) == list(range(count))


@pytest.mark.parametrize("tout", [None, "no dtype", [FLOAT, None], {}, [{}], object()])
def test_what_is_no_dtype_is_refused(tout: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Outputs(tout)


@pytest.mark.parametrize(
    ("tout", "returned", "values"),
    [
        (FLOAT, 1, [1]),
        (FLOAT, [1], [1]),
        (FLOAT, (1,), [1]),
        (FLOAT, [1, 2], [1]),
        (FLOAT, [], [[]]),
        (FLOAT, None, []),
        ([FLOAT], 1, [1]),
        ([FLOAT], [], []),
        ([], None, []),
        ([FLOAT, INT], (1, 2), [1, 2]),
        ([FLOAT, INT], None, []),
        ({"b": FLOAT, "a": INT}, {"a": 1, "b": 2}, [1, 2]),
        ([FLOAT, [INT]], [1, [2]], [1, 2]),
        ([FLOAT, [INT]], (1, [[2, 3]]), [1, [2, 3]]),
        (Pair(FLOAT, INT), Pair(1, 2), [1, 2]),
    ],
)
def test_returned_values_in_the_order_of_the_op(tout: Any, returned: Any, values: Any) -> None:
    assert Outputs(tout).flatten(returned, ignored) == values


@pytest.mark.parametrize(
    ("tout", "returned"),
    [
        ({"a": FLOAT}, 1),
        ({"a": FLOAT}, {"b": 1}),
        ({"a": FLOAT}, {"a": 1, "b": 2}),
        ({"a": FLOAT}, None),
        ([FLOAT, [INT]], [1, 2]),
        ([FLOAT, [INT]], [1]),
        ([FLOAT, [INT, INT]], [1, [2]]),
        ([FLOAT, [INT]], None),
    ],
)
def test_another_structure_is_an_error(tout: Any, returned: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Outputs(tout).flatten(returned, ignored)
