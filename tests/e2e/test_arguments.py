"""contract.md, "Arguments": what goes into a script op and what its function sees."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - makes the jitted functions work
from tests.support.helpers import (
    MODES,
    assert_same,
    each_decorator,
    each_op,
    eagerly,
    jitted,
    plain,
    to_numpy,
)

X = tf.constant([1.0, 2.0])
each_build = pytest.mark.parametrize("build", MODES)
eagerly_too = pytest.mark.parametrize("build", [eagerly, plain, jitted])
FLOAT = tf.float32


def shaped(result: Any, shape: Any = (2,)) -> Any:
    """Says the shape in stock TensorFlow's way."""
    return tf.nest.map_structure(lambda tensor: tf.ensure_shape(tensor, shape), result)


@each_build
@each_op
@pytest.mark.parametrize("function", [42, "sin", X])
def test_what_is_not_callable_is_a_value_error(build: Any, op: Any, function: Any) -> None:
    with pytest.raises(ValueError, match="Expected func to be callable"):
        build(lambda: op(function, [X], FLOAT))()


@each_build
@each_decorator
def test_decorator(build: Any, op: Any) -> None:
    @op(Tout=FLOAT)
    def double(x: Any) -> Any:
        """Doubles."""
        return x * np.float32(2)

    @op(Tout=[FLOAT, tf.int32])
    def parts(x: Any, y: Any) -> Any:
        return x + y, np.array([7, 8], np.int32)

    assert (double.__name__, double.__doc__) == ("double", "Doubles.")
    assert_same(to_numpy(build(lambda x: shaped(double(x)))(X)), np.array([2, 4], np.float32))
    results = to_numpy(build(lambda x: shaped(parts(x, x)))(X))
    assert_same(results, [np.array([2, 4], np.float32), np.array([7, 8], np.int32)])


@each_build
@each_op
@pytest.mark.parametrize(
    ("tout", "kind"),
    [(FLOAT, tf.Tensor), ([FLOAT], list), ((FLOAT,), list), ("float32", tf.Tensor)],
)
def test_a_scalar_tout_gives_a_tensor_and_a_list_a_list(
    build: Any, op: Any, tout: Any, kind: type
) -> None:
    seen = []

    def program(x: Any) -> Any:
        result = op(lambda a: a, [x], tout)
        seen.append(result)
        return shaped(result)

    result = build(program)(X)
    assert isinstance(seen[0], kind)
    assert_same(to_numpy(tf.nest.flatten(result)), [X.numpy()])


@each_build
def test_py_function_sees_eager_tensors_in_eager_mode(build: Any) -> None:
    seen = []

    def look(x: Any, n: Any) -> Any:
        seen.append((tf.executing_eagerly(), type(x), type(n), x.numpy().tolist(), n.numpy()))
        return x

    build(lambda x: shaped(tf.py_function(look, [x, 3], FLOAT)))(X)
    assert seen == [(True, type(X), type(X), [1, 2], 3)]


@eagerly_too
@each_op
def test_a_single_tensor_as_inp(build: Any, op: Any) -> None:
    run = build(lambda x: shaped(op(lambda a: a + np.float32(1), x, FLOAT)))
    assert run(X).numpy().tolist() == [2, 3]
    assert run(tf.Variable([4.0, 5.0])).numpy().tolist() == [5, 6]


@eagerly_too
@each_op
def test_a_dict_as_inp_and_in_tout_and_nested_structures(build: Any, op: Any) -> None:
    seen = []

    def swap(tensors: Any) -> Any:
        assert sorted(tensors) == ["a", "b"]
        return {"x": tensors["b"], "y": (tensors["a"], tensors["a"] + tensors["b"])}

    def look(first: Any, second: Any, third: Any) -> Any:
        seen.append(tf.nest.map_structure(lambda a: np.array(a).tolist(), (first, second, third)))
        return [third, [first["k"][0], second]]

    def program(x: Any) -> Any:
        inp = [{"k": [x, {"deep": x * 2.0}]}, x * 3.0, tf.constant(4.0)]
        last, (first, second) = op(look, inp, [FLOAT, [FLOAT, FLOAT]])
        swapped = op(swap, {"b": x * 10.0, "a": x}, {"y": (FLOAT, FLOAT), "x": FLOAT})
        return shaped(swapped), shaped(last, ()), shaped(first), shaped(second)

    result = to_numpy(build(program)(X))
    assert seen == [({"k": [[1, 2], {"deep": [2, 4]}]}, [3, 6], 4)]
    w, x, y, z = np.array([[10, 20], [1, 2], [11, 22], [3, 6]], np.float32)
    assert_same(result, ({"x": w, "y": (x, y)}, np.float32(4), x, z))
