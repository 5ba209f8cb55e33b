"""contract.md, "Results": whose memory is whose, and very many results."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - makes the jitted functions work
from tests.support.helpers import MODES, OPS, assert_same, jitted, to_numpy

FLOAT = tf.float32
SIZES = [3, 1000, 300_000]


def shaped(results: Any, size: int) -> Any:
    return tf.nest.map_structure(lambda tensor: tf.ensure_shape(tensor, [size]), results)


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", SIZES)
def test_the_input_itself_as_a_result(build: Any, op: Any, size: int) -> None:
    def program(x: tf.Tensor) -> Any:
        y = shaped(op(lambda a: a, [x], FLOAT), size)
        return y, y + 1.0, x + 1.0

    x = np.arange(size, dtype=np.float32)
    run = build(program)
    for step in range(3):
        results = run(tf.constant(x + step))
        assert_same(to_numpy(results), (x + step, x + step + 1, x + step + 1))


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", SIZES)
def test_the_same_array_as_several_results(build: Any, op: Any, size: int) -> None:
    def program(x: tf.Tensor) -> Any:
        a, b, c = shaped(op(lambda a: [a, a, a], [x], [FLOAT] * 3), size)
        return a * 1.0, b * 2.0, c * 3.0

    x = np.arange(size, dtype=np.float32)
    assert_same(to_numpy(build(program)(tf.constant(x))), (x, x * 2, x * 3))


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_views_of_the_input_that_overlap(build: Any, op: Any) -> None:
    def views(x: Any, y: Any) -> Any:
        return [x[1:], x[:-1], x[::-1][1:], y[1:], x[1:]]

    def program(x: tf.Tensor) -> Any:
        results = op(views, [x, x * 2.0], [FLOAT] * 5)
        return [tf.identity(result) for result in shaped(results, 5)]

    x = np.arange(6, dtype=np.float32)
    expected = [x[1:], x[:-1], x[::-1][1:], 2 * x[1:], x[1:]]
    assert_same(to_numpy(build(program)(tf.constant(x))), expected)


@pytest.mark.parametrize("build", MODES)
@pytest.mark.parametrize("op", OPS)
def test_inputs_returned_crosswise(build: Any, op: Any) -> None:
    def program(x: tf.Tensor, y: tf.Tensor) -> Any:
        for _ in range(3):
            x, y = shaped(op(lambda a, b: [b, a], [x, y], [FLOAT] * 2), 4)
        return x, y

    x = np.arange(4, dtype=np.float32)
    assert_same(to_numpy(build(program)(tf.constant(x), tf.constant(-x))), (-x, x))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", SIZES)
def test_an_array_returned_again_and_again_is_never_written_to(op: Any, size: int) -> None:
    mine = np.arange(size, dtype=np.float32)
    mine.flags.writeable = False
    expected = mine.copy()

    def program(x: tf.Tensor) -> Any:
        y = shaped(op(lambda: mine, [], FLOAT), size)
        # What XLA computes it may compute in the memory of its operands.
        for _ in range(5):
            y = tf.reverse(y, [0]) * x + y
        return y

    run = jitted(program)
    first = run(tf.constant(2.0)).numpy()
    for step in range(20):
        run(tf.constant(float(step)))
        assert_same(mine, expected)
    assert_same(run(tf.constant(2.0)).numpy(), first)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", SIZES)
def test_kept_results_and_arguments_stay_as_they_were(op: Any, size: int) -> None:
    kept = []

    def keep(x: Any) -> Any:
        result = x * np.float32(2)
        kept.append((x, result))
        return result

    run = jitted(lambda x: shaped(op(keep, [x], FLOAT), size) + 1.0)
    for step in range(20):
        assert (run(tf.fill([size], float(step))).numpy() == 2 * step + 1).all()
    for step, (x, result) in enumerate(kept):
        assert (np.asarray(x) == step).all()
        assert (np.asarray(result) == 2 * step).all()


@pytest.mark.parametrize("op", OPS)
def test_a_result_may_change_after_the_call(op: Any) -> None:
    mine = np.zeros(4, np.float32)

    def count_up() -> Any:
        mine[:] += 1
        return mine

    def program() -> Any:
        first = shaped(op(count_up, [], FLOAT), 4)
        with tf.control_dependencies([first]):
            second = shaped(op(lambda x: x * np.float32(10), [first], FLOAT), 4)
        return first, second

    run = jitted(program)
    results = [run() for _ in range(5)]
    for step, (first, second) in enumerate(results, 1):
        assert first.numpy().tolist() == [step] * 4
        assert second.numpy().tolist() == [10 * step] * 4


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("count", [1, 2, 300, 700])
def test_hundreds_of_operands_and_results(op: Any, count: int) -> None:
    def turn(*arrays: Any) -> Any:
        return [a + np.float32(i) for i, a in enumerate(reversed(arrays))]

    def program(*tensors: tf.Tensor) -> Any:
        return shaped(op(turn, tensors, [FLOAT] * count), 2)

    values = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    results = jitted(program)(*map(tf.constant, values))
    assert_same(to_numpy(results), turn(*values))


@pytest.mark.parametrize("op", OPS)
def test_hundreds_of_results_of_many_dtypes_and_shapes(op: Any) -> None:
    dtypes = [np.float32, np.int8, np.complex128, np.bool_, np.float16, np.uint64]
    rng = np.random.default_rng(0)
    values: list[np.ndarray] = [
        rng.integers(0, 2, rng.integers(0, 4, i % 5)).astype(dtypes[i % len(dtypes)])
        for i in range(300)
    ]

    def program(*tensors: tf.Tensor) -> Any:
        results = op(lambda *arrays: arrays[::-1], tensors, [v.dtype for v in reversed(values)])
        for result, value in zip(results, reversed(values), strict=True):
            result.set_shape(value.shape)
        return results

    assert_same(to_numpy(jitted(program)(*map(tf.constant, values))), values[::-1])
