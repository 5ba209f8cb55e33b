"""hostcall._callbacks.structures: what the user says of results."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall import BoundedSpec
from hostcall._callbacks import structures

FLOAT = tf.float32


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


def test_a_wrong_dtype_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no dtype"):
        BoundedSpec([3], "no dtype")


def test_bounded_specs_are_values() -> None:
    spec = BoundedSpec([3, 4], FLOAT, dynamic_dims=[1])
    assert spec == BoundedSpec((3, 4), "float32", dynamic_dims=(-1,))
    assert hash(spec) == hash(BoundedSpec((3, 4), "float32", dynamic_dims=(-1,)))
    assert spec != BoundedSpec([3, 4], FLOAT, dynamic_dims=[0])
    assert spec != BoundedSpec([3, 4], tf.float64, dynamic_dims=[1])
    with pytest.raises(AttributeError):
        spec.shape = (5,)  # type: ignore[misc]
    assert str(spec) == "(3, <=4)"
    assert str(BoundedSpec([3], FLOAT)) == "(<=3,)"
    assert str(BoundedSpec([], FLOAT, dynamic_dims=[])) == "()"


def test_the_tensor_spec_leaves_dynamic_dims_open() -> None:
    spec = BoundedSpec([3, 4, 5], FLOAT, dynamic_dims=[0, 2])
    assert spec.tensor_spec() == tf.TensorSpec([None, 4, None], FLOAT)
    assert structures.static_shape(spec).as_list() == [None, 4, None]
    assert structures.static_shape(tf.TensorSpec([1, None], FLOAT)).as_list() == [1, None]


def test_leaves() -> None:
    leaves = [tf.TensorSpec([1], FLOAT), BoundedSpec([1], FLOAT), tf.TensorShape([1])]
    assert all(structures.is_leaf(leaf) for leaf in leaves)
    others: list[object] = [[1], (1,), None, {}, FLOAT, len]
    assert not any(map(structures.is_leaf, others))


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([2, None], [2, None]),
        ((2,), [2]),
        ([], []),
        (tf.TensorShape([4]), [4]),
        (tf.TensorSpec([5], FLOAT), [5]),
    ],
)
def test_shapes_become_specs(value: Any, shape: Any) -> None:
    spec = structures.as_spec(value, FLOAT)
    assert spec.shape.as_list() == shape
    assert spec.dtype == FLOAT


def test_specs_stay_what_they_are() -> None:
    bounded = BoundedSpec([3], tf.int32)
    assert structures.as_spec(bounded, FLOAT) is bounded
    assert structures.as_spec(tf.TensorSpec([3], tf.int32), None).dtype == tf.int32
    assert structures.as_spec(tf.constant([1.0]), None) == tf.TensorSpec([1], FLOAT)


@pytest.mark.parametrize("value", [FLOAT, "text", {"a": 1}, ["a"], object()])
def test_what_is_no_spec_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"a result is declared as a tf\.TensorSpec"):
        structures.as_spec(value, FLOAT)


@pytest.mark.parametrize("value", [[2], tf.TensorShape([2]), FLOAT, None])
def test_a_result_without_a_dtype_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=r"must say its (dtype|shape)"):
        structures.as_spec(value, None)


@pytest.mark.parametrize(
    ("shape", "admitted"),
    [
        ((3, 5), True),
        ((0, 5), True),
        ((4, 5), True),
        ((5, 5), False),
        ((3, 4), False),
        ((3,), False),
    ],
)
def test_what_a_bound_admits(shape: Any, admitted: bool) -> None:
    assert structures.admits(BoundedSpec([4, 5], FLOAT), shape) is admitted


def test_what_a_tensor_spec_admits() -> None:
    spec = tf.TensorSpec([None, 5], FLOAT)
    assert structures.admits(spec, (100, 5))
    assert not structures.admits(spec, (100, 4))
    assert not structures.admits(spec, (5,))
    assert structures.admits(tf.TensorSpec(None, FLOAT), (1, 2, 3))
    assert structures.admits(tf.TensorSpec([], FLOAT), ())


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (tf.TensorSpec([None, 3], FLOAT), None, tf.TensorSpec([None, 3], FLOAT)),
        (
            tf.TensorSpec([None, 3], FLOAT),
            tf.TensorSpec([2, None], FLOAT),
            tf.TensorSpec([2, 3], FLOAT),
        ),
        (tf.TensorSpec(None, FLOAT), tf.TensorSpec([2], FLOAT), tf.TensorSpec([2], FLOAT)),
        (BoundedSpec([4, 3], FLOAT), tf.TensorSpec([None, 3], FLOAT), BoundedSpec([4, 3], FLOAT)),
        (tf.TensorSpec(None, FLOAT), BoundedSpec([4, 3], FLOAT), BoundedSpec([4, 3], FLOAT)),
        (BoundedSpec([4], FLOAT), BoundedSpec([9], FLOAT), BoundedSpec([4], FLOAT)),
        (
            BoundedSpec([4, 5], FLOAT, dynamic_dims=[0, 1]),
            tf.TensorSpec([2, None], FLOAT),
            BoundedSpec([2, 5], FLOAT, dynamic_dims=[1]),
        ),
    ],
)
def test_merged_specs_say_what_both_say(first: Any, second: Any, merged: Any) -> None:
    assert structures.merge(first, second) == merged


def test_specs_that_contradict_each_other_do_not_merge() -> None:
    with pytest.raises(ValueError, match="not compatible"):
        structures.merge(tf.TensorSpec([2], FLOAT), tf.TensorSpec([3], FLOAT))
    with pytest.raises(ValueError, match="not compatible"):
        structures.merge(BoundedSpec([4, 3], FLOAT), tf.TensorSpec([None, 5], FLOAT))


def test_it_is_part_of_the_api() -> None:
    assert hostcall.BoundedSpec is structures.BoundedSpec
