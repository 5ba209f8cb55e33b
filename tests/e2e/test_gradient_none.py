"""What has no gradient: None or zeros, as in a process with stock TensorFlow, or an error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import tests.support.gradients as g
from tests.support.e2e import gradient_none_programs as programs
from tests.support.helpers import jitted, plain
from tests.support.stress.template import Template


class Callbacks:
    """hostcall.callback in the place of the stock ops."""

    def numpy(self, function: Any, *inputs: Any, dtypes: Any = tf.float32) -> Any:
        return self._call("numpy", function, inputs, dtypes)

    def eager(self, function: Any, *inputs: Any, dtypes: Any = tf.float32) -> Any:
        return self._call("eager", function, inputs, dtypes)

    def _call(self, kind: str, function: Any, inputs: Any, dtypes: Any) -> Any:
        specs = tf.nest.map_structure(lambda dtype: tf.TensorSpec([2], dtype), dtypes)
        return hostcall.callback(function, result=specs, kind=kind)(*inputs)


OPS = {"script ops": programs.Ops(), "callbacks": Callbacks()}
each_op = pytest.mark.parametrize("ops", OPS.values(), ids=OPS)
each_place = pytest.mark.parametrize("place", g.PLACES.values(), ids=g.PLACES)

STRINGS = ["string_input", "string_result"]
OTHERS = [name for name in programs.PROGRAMS if name not in STRINGS]


@pytest.fixture(scope="module")
def stock(fresh_python: Template) -> Any:
    file = programs.__file__
    ended = fresh_python.run_program(Path(file).read_text(), file)
    assert ended.status == 0, ended.said
    return json.loads(ended.printed.splitlines()[-1])


def outcomes(mode: Any, ops: Any, name: str) -> Any:
    program = programs.PROGRAMS[name]
    return [programs.outcome(mode, inside, ops, program) for inside in (True, False)]


def assert_same(actual: Any, expected: Any) -> None:
    """The same gradients, or an error of the same class."""
    for one, other in zip(actual, expected, strict=True):
        if isinstance(other, str):
            assert one.partition(":")[0] == other.partition(":")[0]
        else:
            assert one == other


@each_op
@pytest.mark.parametrize("name", OTHERS)
def test_a_compiled_program_has_what_a_stock_graph_has(stock: Any, ops: Any, name: str) -> None:
    assert_same(outcomes(jitted, ops, name), stock["in a graph"][name])


@each_op
@pytest.mark.parametrize("name", OTHERS)
def test_so_does_a_graph(stock: Any, ops: Any, name: str) -> None:
    assert_same(outcomes(plain, ops, name), stock["in a graph"][name])


@each_op
@pytest.mark.parametrize("name", OTHERS)
def test_and_eager_mode(stock: Any, ops: Any, name: str) -> None:
    assert_same(outcomes(g.eagerly, ops, name), stock["eagerly"][name])


@each_op
@pytest.mark.parametrize("name", STRINGS)
def test_strings_are_an_error_that_says_so_where_xla_compiles(ops: Any, name: str) -> None:
    with hostcall.scope(route="custom_call"):
        refused = outcomes(jitted, ops, name)
    for outcome in refused:
        assert outcome.startswith("InvalidArgumentError: ")
        assert "cannot enter or leave an XLA program" in outcome


@each_op
@pytest.mark.parametrize("mode", [g.eagerly, plain, jitted])
@pytest.mark.parametrize("name", STRINGS)
def test_elsewhere_strings_do_not_disturb_the_gradient(mode: Any, ops: Any, name: str) -> None:
    expected = (2.0 * programs.X).numpy().tolist()
    assert outcomes(mode, ops, name) == [[expected, None, 0]] * 2


def test_the_error_of_a_gradient_is_that_of_python() -> None:
    for outcome in outcomes(jitted, OPS["script ops"], "gradient_that_raises"):
        assert "ValueError: no gradient here" in outcome


SQUARES = {
    "numpy_function": lambda x: tf.numpy_function(np.square, [x], tf.TensorSpec(x.shape, x.dtype)),
    "a numpy callback": hostcall.callback(np.square, result=lambda x: x),
    "a stateless one": hostcall.callback(np.square, result=lambda x: x, stateful=False),
}


@each_place
@pytest.mark.parametrize("size", g.SIZES)
@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
def test_at_every_size_numpy_has_none(square: Any, size: int, place: Any) -> None:
    x = g.values(size)
    assert place(jitted, square)(x) == (None,)
    (beside,) = place(jitted, lambda x: square(x) + 2.0 * x)(x)
    g.assert_close(beside, 2.0 * g.weights(x))


@each_place
@pytest.mark.parametrize("size", g.SIZES)
def test_at_every_size_what_is_not_followed_has_zeros(size: int, place: Any) -> None:
    """The tape of the callback cannot tell a value that NumPy computed from a constant."""
    x = g.values(size)
    (slope,) = place(jitted, lambda x: g.by_py_function(lambda x: x.numpy() ** 2, x))(x)
    np.testing.assert_array_equal(slope, tf.zeros_like(x))
