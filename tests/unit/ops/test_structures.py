"""hostcall._ops.structures: nested inputs and results against the flat lists of an op."""

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hostcall import BoundedSpec
from hostcall._ops import structures
from hostcall._ops.structures import Outputs, read_inputs

FLOAT, INT = tf.float32, tf.int32
Pair = collections.namedtuple("Pair", ["left", "right"])
A, B = tf.constant(1.0), tf.constant([2.0, 3.0])


def ignored() -> None: ...


def test_lists_are_packed_where_tensorflow_can() -> None:
    given = [[A, 5.0], [1, 2], (B, B), [A, B], [{"x": A}], Pair(A, A), Pair(A, B)]
    inputs = read_inputs(given, eager=False)
    shapes = [tensor.shape.as_list() for tensor in inputs.flat[:3]]
    assert shapes == [[2], [2], [2, 2]]
    # Of different shapes or with a dict: these stay structures.
    assert inputs.pack(range(9)) == [0, 1, 2, [3, 4], [{"x": 5}], 6, Pair(7, 8)]


@pytest.mark.parametrize("tout", [None, "no dtype", [FLOAT, None], {}, [{}], object()])
def test_what_is_no_dtype_is_refused(tout: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Outputs(tout)


# What the user says of results.


@pytest.mark.parametrize("shape", [[3, 2], (3, 2), tf.TensorShape([3, 2])])
@pytest.mark.parametrize("dtype", [FLOAT, "float32", np.float32])
def test_a_bounded_spec_takes_shapes_and_dtypes_in_any_form(shape: Any, dtype: Any) -> None:
    spec = BoundedSpec(shape, dtype)
    assert spec.shape == (3, 2)
    assert all(type(dim) is int for dim in spec.shape)
    assert spec.dtype == FLOAT
    assert spec.dynamic_dims == (0,)


@pytest.mark.parametrize(
    ("named", "dims"),
    [([0], (0,)), ([-1], (2,)), ((2, 0), (0, 2)), (range(3), (0, 1, 2)), ([], ()), ({1}, (1,))],
)
def test_dynamic_dims_are_positive_and_in_order(named: Any, dims: Any) -> None:
    assert BoundedSpec([4, 5, 6], FLOAT, dynamic_dims=named).dynamic_dims == dims


@pytest.mark.parametrize(
    ("shape", "dims", "message"),
    [
        ([None, 3], [0], "wants a bound for every dimension"),
        (None, [0], "wants a bound for every dimension"),
        ([-1], [0], "-1"),
        ([3], [1], r"names a dimension that the shape \(3,\) does not have"),
        ([3], [-2], "it has rank 1"),
        ([], [0], "it has rank 0"),
        ([3, 4], [0, 0], "names a dimension twice"),
        ([3, 4], [1, -1], "names a dimension twice"),
    ],
)
def test_wrong_bounds_are_value_errors(shape: Any, dims: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoundedSpec(shape, FLOAT, dynamic_dims=dims)


def test_bounded_specs_are_values() -> None:
    spec, same = BoundedSpec([3, 4], FLOAT, [1]), BoundedSpec((3, 4), "float32", (-1,))
    assert spec == same
    assert hash(spec) == hash(same)
    assert spec not in (BoundedSpec([3, 4], FLOAT, [0]), BoundedSpec([3, 4], tf.float64, [1]))
    with pytest.raises(AttributeError):
        spec.shape = (5,)  # type: ignore[misc]
    shown = [str(one) for one in (spec, BoundedSpec([3], FLOAT), BoundedSpec([], FLOAT, []))]
    assert shown == ["(3, <=4)", "(<=3,)", "()"]
    assert spec.tensor_spec() == tf.TensorSpec([3, None], FLOAT)
    with pytest.raises(TypeError, match="no dtype"):
        BoundedSpec([3], "no dtype")


def known(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, FLOAT)


@pytest.mark.parametrize(
    ("value", "shape"),
    [([2, None], [2, None]), ((2,), [2]), ([], []), (tf.TensorShape([4]), [4]), (known(5), [5])],
)
def test_shapes_become_specs(value: Any, shape: Any) -> None:
    spec = structures.as_spec(value, FLOAT)
    assert spec.shape.as_list() == shape
    assert spec.dtype == FLOAT


def bounded(*shape: int, dims: Any = (0,)) -> BoundedSpec:
    return BoundedSpec(shape, FLOAT, dims)


UNKNOWN = tf.TensorSpec(None, FLOAT)


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (known(None, 3), None, known(None, 3)),
        (known(None, 3), known(2, None), known(2, 3)),
        (UNKNOWN, known(2), known(2)),
        (bounded(4, 3), known(None, 3), bounded(4, 3)),
        (UNKNOWN, bounded(4, 3), bounded(4, 3)),
        (bounded(4), bounded(9), bounded(4)),
        (bounded(4, 5, dims=(0, 1)), known(2, None), bounded(2, 5, dims=(1,))),
    ],
)
def test_merged_specs_say_what_both_say(first: Any, second: Any, merged: Any) -> None:
    assert structures.merge(first, second) == merged


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


@pytest.mark.parametrize("value", [FLOAT, "text", {"a": 1}, ["a"], object()])
def test_what_is_no_spec_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"a result is declared as a tf\.TensorSpec"):
        structures.as_spec(value, FLOAT)
