"""hostcall._callbacks.structures: nested inputs and results against the flat lists of an op."""

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hostcall import BoundedSpec
from hostcall._callbacks.structures import Inputs, Outputs, read_inputs

FLOAT, INT = tf.float32, tf.int32
Pair = collections.namedtuple("Pair", ["left", "right"])
A, B, C = tf.constant(1.0), tf.constant([2.0, 3.0]), tf.constant([4])


def ignored() -> None: ...


def test_flat_inputs() -> None:
    inputs = read_inputs([A, B], eager=False)
    assert inputs.count == 2
    assert not inputs.nested
    assert [tensor is given for tensor, given in zip(inputs.flat, [A, B], strict=True)] == [
        True
    ] * 2
    assert inputs.pack([1, 2]) == [1, 2]
    assert inputs.pack_specs(["a", "b"]) == ["a", "b"]


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


@pytest.mark.parametrize("alone", [A, tf.Variable([1.0]), {"x": A}])
def test_a_lone_input_is_one_argument(alone: Any) -> None:
    inputs = read_inputs(alone, eager=False)
    assert inputs.count == 1
    assert len(inputs.flat) == 1


def test_variables_are_read() -> None:
    variable = tf.Variable([1.0, 2.0])
    inputs = read_inputs([variable, {"deep": variable}], eager=True)
    assert all(isinstance(tensor, tf.Tensor) for tensor in inputs.flat)
    variable.assign([5.0, 6.0])
    assert [tensor.numpy().tolist() for tensor in inputs.flat] == [[1, 2]] * 2


def test_lists_are_packed_where_tensorflow_can() -> None:
    inputs = read_inputs(
        [[A, 5.0], [1, 2], (B, B), [A, B], [{"x": A}], Pair(A, A), Pair(A, B)], eager=False
    )
    shapes = [tensor.shape.as_list() for tensor in inputs.flat[:3]]
    assert shapes == [[2], [2], [2, 2]]
    # Of different shapes or with a dict: these stay structures.
    assert inputs.pack(range(9)) == [0, 1, 2, [3, 4], [{"x": 5}], 6, Pair(7, 8)]


def test_lists_stay_lists_for_callbacks() -> None:
    inputs = read_inputs([[A, A]], eager=False, pack_lists=False)
    assert inputs.pack([1, 2]) == [[1, 2]]


def test_composite_inputs_go_as_their_parts() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    inputs = read_inputs([ragged, A], eager=True)
    assert inputs.nested
    assert inputs.count == 2
    assert len(inputs.flat) == 3
    packed, last = inputs.pack(inputs.flat)
    assert isinstance(packed, tf.RaggedTensor)
    assert packed.to_list() == [[1], [2, 3]]
    assert last is A
    assert inputs.pack_specs(["values", "partitions", "a"]) == [["values", "partitions"], "a"]


def test_inputs_do_not_keep_tensors() -> None:
    inputs = Inputs([A, [B]], expand_composites=True)
    inputs.flat = []
    assert inputs.flat == []
    assert inputs.pack([1, 2]) == [1, [2]]


def test_gradients_in_the_structure_of_the_arguments() -> None:
    inputs = Inputs([A, {"y": B, "x": C}, A], expand_composites=True)
    assert inputs.flatten_gradients([1, {"x": 2, "y": 3}, None]) == [1, 2, 3, None]
    assert inputs.flatten_gradients((None, None, 4)) == [None, None, None, 4]
    assert Inputs([A], expand_composites=True).flatten_gradients(1) == [1]
    with pytest.raises(ValueError, match="grad returned 1 gradient for 3 arguments"):
        inputs.flatten_gradients(1)
    with pytest.raises(ValueError, match="grad returned 2 gradients for 3 arguments"):
        inputs.flatten_gradients([1, 2])


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


def test_tuples_stay_tuples_where_asked() -> None:
    assert Outputs((FLOAT, INT), strict=True).pack([0, 1]) == (0, 1)
    assert Outputs([FLOAT, INT], strict=True).pack([0, 1]) == [0, 1]


def test_specs_in_tout() -> None:
    spec, bounded = tf.TensorSpec([2], INT), BoundedSpec([3], FLOAT)
    outputs = Outputs([FLOAT, spec, bounded])
    assert outputs.dtypes == [FLOAT, INT, FLOAT]
    assert outputs.specs == [None, spec, bounded]
    assert outputs.trivial


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


def test_composite_results_come_as_their_parts() -> None:
    spec = tf.RaggedTensorSpec([2, None], FLOAT)
    outputs = Outputs([spec, INT])
    assert outputs.dtypes == [FLOAT, tf.int64, INT]
    assert not outputs.trivial
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    values, partitions, number = outputs.flatten([ragged, 7], ignored)
    assert (values.numpy().tolist(), partitions.numpy().tolist(), number) == (
        [1, 2, 3],
        [0, 1, 3],
        7,
    )
    packed, last = outputs.pack([values, partitions, C])
    assert packed.to_list() == [[1], [2, 3]]
    assert last is C
    assert len(outputs.unpack([packed, C])) == 3


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([np.zeros(2)], "did not match Tout"),
        ([tf.ragged.constant([[1], [2]])], "is not compatible with"),
        ([1, 2], "did not match Tout"),
        (None, "did not match Tout"),
    ],
)
def test_composite_results_that_do_not_fit(returned: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outputs([tf.RaggedTensorSpec([2, None], FLOAT)]).flatten(returned, ignored)


@pytest.mark.parametrize(
    ("returned", "message"), [([], "returned 0 values"), ([1, 2], "returned 2 values")]
)
def test_composite_results_of_which_there_must_be_so_many(returned: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outputs([tf.RaggedTensorSpec([2, None], FLOAT)], strict=True).flatten(returned, ignored)


def test_too_many_values_where_there_must_be_so_many() -> None:
    assert Outputs(FLOAT, strict=True).flatten([1, 2], ignored) == [1, 2]
