"""What follows from constants alone is constant: a callback leaves one program as it was."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._ops.emit import captures
from hostcall._tf.graph import attributes
from tests.support.helpers import gradient_of

# A custom call alone leaves a function one program.
pytestmark = pytest.mark.custom_call("with partitioning forced, each function is partitioned")

SPLITS = tf.constant([0, 3, 5, 7], tf.int64)
SMALL = tf.RaggedTensor.from_row_splits(tf.range(7), SPLITS)
# More elements than the graph of a function holds: arguments of the function.
LENGTHS = np.arange(200) % 3 + 1
LARGE = tf.RaggedTensor.from_row_lengths(tf.range(LENGTHS.sum(), dtype=tf.int32), LENGTHS)

seen: list[np.ndarray] = []


def note(value: np.ndarray) -> None:
    seen.append(value)


def _rows_of(x: Any, rows: Any) -> Any:
    return rows.with_flat_values(tf.gather(x, rows.flat_values))


def _update(x: Any, rows: Any = SMALL) -> Any:
    """Make an update that needs the sums of rows: the smallest step of a decoder."""
    ragged = _rows_of(x, rows)
    sums = tf.reduce_sum(ragged, axis=1) * tf.reduce_prod(ragged, axis=1)
    return tf.tanh(x - tf.repeat(sums, rows.row_lengths()))


def _loop(x: Any) -> Any:
    for _ in tf.range(3):
        x = _update(x)
    return x


def _nested_loop(x: Any) -> Any:
    for i in tf.range(2):
        for _ in tf.range(2):
            x = _update(x)
        if i == 0:
            x = _update(x)
    return x


def _branch(x: Any) -> Any:
    return _update(x) if tf.reduce_sum(x) > 0.0 else 2.0 * x


@tf.function
def _called_update(x: Any, splits: Any) -> Any:
    return _update(x, tf.RaggedTensor.from_row_splits(tf.range(7), splits, validate=False))


def _called(x: Any) -> Any:
    # One function, which is another one for each of the constants.
    x = _called_update(x, SPLITS)
    x = _called_update(x, tf.constant([0, 1, 1, 7], tf.int64))
    return _called_update(x, SPLITS)


def _called_in_loop(x: Any) -> Any:
    for _ in tf.range(3):
        x = _called_update(x, SPLITS)
    return x


def _mapped(x: Any) -> Any:
    return tf.map_fn(_update, tf.stack([x, 2.0 * x]))


def _large(x: Any) -> Any:
    x = tf.tile(x, [tf.size(LARGE.flat_values) // 7 + 1])[: LENGTHS.sum()]
    for _ in tf.range(3):
        x = _update(x, LARGE)
    return x


def _found(x: Any) -> Any:
    mask = tf.constant([True, False, True, True, False, True, False])
    return tf.boolean_mask(x, mask) * tf.cast(tf.where(mask)[:, 0], x.dtype)


def _unique(x: Any) -> Any:
    values, index = tf.unique(tf.constant([3, 1, 3, 2, 1, 1, 0]))
    return tf.math.unsorted_segment_sum(x, index, tf.size(values)) * tf.cast(values, x.dtype)


def _nested_rows(x: Any) -> Any:
    outer = tf.RaggedTensor.from_row_splits(_rows_of(x, SMALL), tf.constant([0, 1, 3], tf.int64))
    return tf.reduce_max(tf.reduce_max(outer, axis=2), axis=1)


def _while_with_two(x: Any) -> Any:
    """Exchange the splits in each iteration: they are not constants."""
    one, other = SPLITS, tf.constant([0, 1, 1, 7], tf.int64)
    for _ in tf.range(3):
        rows = tf.RaggedTensor.from_row_splits(x, one, validate=False)
        x = x + tf.repeat(tf.reduce_sum(rows, axis=1), [3, 2, 2])
        one, other = other, one
    return x


ONE_PROGRAM: list[Callable[[Any], Any]] = [
    _update,
    _loop,
    _nested_loop,
    _branch,
    _called,
    _called_in_loop,
    _mapped,
    _large,
    _found,
    _unique,
    _nested_rows,
]


def _noting(body: Callable[[Any], Any]) -> Any:
    """Return the compiled function that also shows its result to a callback without results."""

    @tf.function(jit_compile=True)
    def noted(x: Any) -> Any:
        y = body(x)
        tf.numpy_function(note, [tf.reduce_mean(y)], [])
        return y

    return noted


def _is_one_program(function: Any, *args: Any) -> bool:
    explained = hostcall.explain(function, *args)
    called = all(op.reason.startswith("the program calls") for op in explained.host_ops)
    return called and not explained.boundaries and len(explained.clusters) == 1


def _x() -> tf.Tensor:
    return tf.linspace(0.1, 0.7, 7)


@pytest.mark.parametrize("body", ONE_PROGRAM, ids=lambda body: body.__name__)
def test_a_callback_leaves_one_program(body: Callable[[Any], Any]) -> None:
    noted, plain = _noting(body), tf.function(body)
    seen.clear()
    np.testing.assert_allclose(noted(_x()), plain(_x()), rtol=1e-5)
    np.testing.assert_allclose(seen, [tf.reduce_mean(plain(_x()))], rtol=1e-5)
    assert _is_one_program(noted, _x())


@pytest.mark.parametrize("body", [_loop, _large, _called], ids=lambda body: body.__name__)
def test_a_print_leaves_one_program(body: Callable[[Any], Any], capfd: Any) -> None:
    @tf.function(jit_compile=True)
    def printing(x: Any) -> Any:
        y = body(x)
        tf.print("mean", tf.reduce_mean(y))
        return y

    np.testing.assert_allclose(printing(_x()), tf.function(body)(_x()), rtol=1e-5)
    assert capfd.readouterr().err.count("mean") == 1
    assert _is_one_program(printing, _x())


@pytest.mark.parametrize(
    "body", [_update, _loop, _branch, _called, _large], ids=lambda body: body.__name__
)
def test_gradients_are_those_of_graph_mode(body: Callable[[Any], Any]) -> None:
    got, expected = gradient_of(_noting(body), _x()), gradient_of(tf.function(body), _x())
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_a_gradient_inside_leaves_one_program() -> None:
    def body(x: Any) -> Any:
        return gradient_of(lambda x: _update(_update(x)), x)

    noted = _noting(body)
    np.testing.assert_allclose(noted(_x()), tf.function(body)(_x()), rtol=1e-4)
    assert _is_one_program(noted, _x())


@pytest.mark.parametrize("splits", [[0, 3, 5, 7], [0, 0, 7, 7], [0, 7, 7, 7]])
def test_splits_that_are_no_constants_stay_what_they_are(splits: list[int]) -> None:
    @tf.function(jit_compile=True)
    def noted(x: Any, splits: Any) -> Any:
        y = _called_update(x, splits)
        tf.numpy_function(note, [tf.reduce_mean(y)], [])
        return y

    given = tf.constant(splits, tf.int64)
    np.testing.assert_allclose(noted(_x(), given), _called_update(_x(), given), rtol=1e-5)


def test_what_a_loop_changes_is_no_constant() -> None:
    expected = tf.function(_while_with_two)(_x())
    np.testing.assert_allclose(_noting(_while_with_two)(_x()), expected, rtol=1e-5)


def test_a_variable_is_no_constant() -> None:
    splits = tf.Variable([0, 3, 5, 7], dtype=tf.int64)

    def body(x: Any) -> Any:
        return _called_update(x, splits.read_value())

    noted = _noting(body)
    for each in ([0, 3, 5, 7], [0, 1, 1, 7]):
        splits.assign(each)
        np.testing.assert_allclose(noted(_x()), tf.function(body)(_x()), rtol=1e-5)


def test_an_error_of_constants_is_raised_when_the_program_runs() -> None:
    def body(x: Any, i: Any) -> Any:
        if i > 0:
            rows = tf.gather(SPLITS, tf.constant([0, 9]))
            x = x + tf.reduce_sum(tf.gather(x, tf.where(rows > 0)[:, 0]))
        return x

    @tf.function(jit_compile=True)
    def noted(x: Any, i: Any) -> Any:
        y = body(x, i)
        tf.numpy_function(note, [tf.reduce_mean(y)], [])
        return y

    np.testing.assert_allclose(noted(_x(), tf.constant(0)), _x())
    with pytest.raises(tf.errors.InvalidArgumentError):
        noted(_x(), tf.constant(1))


def test_an_assertion_of_constants_stays_before_what_waits_for_it() -> None:
    def body(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            mask = tf.identity(tf.constant([True, False] * 3 + [True]))
        return tf.boolean_mask(x, mask)

    noted = _noting(body)
    np.testing.assert_allclose(noted(_x()), tf.function(body)(_x()))
    seen.clear()
    with pytest.raises(tf.errors.InvalidArgumentError):
        noted(-_x())
    assert not seen


def test_other_functions_get_no_marks() -> None:
    @tf.function(jit_compile=True)
    def alone(x: Any) -> Any:
        return _loop(x)

    @tf.function
    def uncompiled(x: Any) -> Any:
        y = _loop(x)
        tf.numpy_function(note, [y], [])
        return y

    for function in (alone, uncompiled):
        traced = function.get_concrete_function(_x()).function_def
        assert not any(attributes.CAPTURED in m.attr for m in traced.arg_attr.values())


def test_a_wrapped_function_has_the_values_of_graph_mode() -> None:
    noted = _noting(_large)
    wrapped = tf.compat.v1.wrap_function(lambda x: noted(x), [tf.TensorSpec([7])])
    np.testing.assert_allclose(wrapped(_x()), tf.function(_large)(_x()), rtol=1e-5)


def test_a_captured_tensor_that_is_replaced_is_no_constant() -> None:
    graph = tf.__internal__.FuncGraph("replaced")
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [7])
        graph.inputs.append(x)
        y = _update(x)
        tf.numpy_function(note, [tf.reduce_mean(y)], [])
        graph.outputs.append(y)
    attrs = {"_XlaMustCompile": True}
    captures.note_constants(graph, attrs)
    marked = [t for t in graph.inputs if attributes.CAPTURED in t.op.node_def.attr]
    assert marked
    graph.function_captures.clear()
    captures.note_constants(graph, attrs)
    assert not [t for t in marked if attributes.CAPTURED in t.op.node_def.attr]


def test_a_saved_function_is_one_program_again(tmp_path: Any) -> None:
    module = tf.Module()

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([7])])
    def noted(x: Any) -> Any:
        y = _large(x)
        tf.numpy_function(note, [tf.reduce_mean(y)], [])
        return y

    module.noted = noted
    expected = noted(_x())
    tf.saved_model.save(module, str(tmp_path))
    hostcall.allow(note.__module__)
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.noted(_x()), expected, rtol=1e-5)
    assert _is_one_program(loaded.noted, _x())


def test_an_exported_program_holds_what_follows_from_constants(tmp_path: Any) -> None:
    function = _noting(_loop)
    hostcall.export(function, tf.TensorSpec([7])).save(tmp_path / "loop")
    hostcall.allow(note.__module__)
    loaded = hostcall.load(tmp_path / "loop")
    np.testing.assert_allclose(loaded(_x()), tf.function(_loop)(_x()), rtol=1e-5)
