"""Large arguments of compiled calls to other processes: they lie where these read them."""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from hostcall_runtime import _shared_memory
from tests.support import executor_functions as functions
from tests.support.helpers import assert_equal, jitted, like
from tests.support.process_pools import one_process, two_processes

SIZE = 1 << 17  # half a MiB of float32


pytestmark = pytest.mark.usefixtures("pools_end")


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the arrays that this process copies into shared memory."""
    shapes: list[tuple[int, ...]] = []
    put = _shared_memory.Block.put

    def spy(block: _shared_memory.Block, array: Any) -> Any:
        shapes.append(array.shape)
        return put(block, array)

    monkeypatch.setattr(_shared_memory.Block, "put", spy)
    return shapes


def on(executor: Any, function: Callable[..., Any], result: Any = like, **how: Any) -> Any:
    return hostcall.callback(function, result=result, executor=executor, **how)


def values(first: float = 0.0) -> Any:
    return np.arange(SIZE, dtype=np.float32) % 100 + np.float32(first)


def by_tensorflow(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    callback = on(one_process, function, **how)
    program = jitted(lambda *args: callback(*args))
    return lambda *args: program(*map(tf.constant, args)).numpy()


def by_jax(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    def call(x: Any, *args: Any) -> Any:
        result = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return hostcall.jax.call(function, result, x, *args, executor=one_process, **how)

    program = jax.jit(call)
    return lambda *args: np.asarray(program(*args))


each_framework = pytest.mark.parametrize("compiled", [by_tensorflow, by_jax])


@pytest.mark.custom_call("the stock kernel makes the arrays of host ops")
@each_framework
def test_they_are_not_copied_again(compiled: Any, copied: list[tuple[int, ...]]) -> None:
    subtract = compiled(np.subtract)
    subtract(values(), values())  # the pool is made by the first call
    copied.clear()
    np.testing.assert_array_equal(subtract(values(3.0), values(1.0)), np.full(SIZE, 2.0))
    assert copied == []


@each_framework
def test_they_are_the_functions_own(compiled: Any) -> None:
    negated = compiled(functions.negated_in_place)
    x = values()
    for _ in range(3):
        np.testing.assert_array_equal(negated(x), -values())
    np.testing.assert_array_equal(x, values())


@each_framework
def test_what_a_function_keeps_stays(compiled: Any) -> None:
    keeps, double, first_kept = map(compiled, (functions.keeps, functions.doubled, functions.last))
    for first in range(40):
        np.testing.assert_array_equal(keeps(values(first)), values(first))
        double(values(-1.0))
        assert first_kept(values())[0] == first
    compiled(functions.forgets)(values())


def test_memory_is_used_again() -> None:
    double = by_tensorflow(functions.doubled)
    for first in range(42):
        np.testing.assert_array_equal(double(values(first)), 2 * values(first))
        if first == 1:
            before = functions.open_blocks(0)
    assert functions.open_blocks(0) <= before


def test_a_call_that_fails_leaves_the_next_its_own() -> None:
    fails, double = by_tensorflow(functions.fails), by_tensorflow(functions.doubled)
    for first in range(3):
        with pytest.raises(tf.errors.OpError):
            fails(values(first))
        np.testing.assert_array_equal(double(values(first)), 2 * values(first))


def test_a_second_attempt_finds_them_as_they_were(tmp_path: Any) -> None:
    by_tensorflow(functions.doubled)(values())  # makes the pool
    dies_once = functions.NegatesAndDiesOnce(str(tmp_path / "died"))
    negated = by_tensorflow(dies_once, pure=True, retries=1)
    np.testing.assert_array_equal(negated(values()), -values())
    assert os.path.exists(dies_once.path)


@pytest.mark.custom_call("the stock kernel makes the arrays of host ops")
def test_parts_lie_there_too(copied: list[tuple[int, ...]]) -> None:
    mapped = hostcall.map(
        functions.added_in_place, executor=two_processes, in_axes=(0, None), chunks=2
    )
    callback = hostcall.callback(mapped, result=like)
    program = jitted(lambda x, y: callback(x, y))
    x = np.stack([values(row) for row in range(4)])
    for first in (5.0, 6.0):
        copied.clear()
        total = program(tf.constant(x), tf.constant(values(first))).numpy()
        np.testing.assert_array_equal(total, x + values(first))
    assert copied == [(SIZE,)] * 2  # what is passed whole: each part has its own


def test_more_of_them_than_there_is_memory_for() -> None:
    double = on(one_process, functions.doubled)
    program = jitted(lambda *xs: [double(x) for x in xs])
    arrays = [values(first) for first in range(70)]
    assert_equal(program(*map(tf.constant, arrays)), [2 * x for x in arrays])


@pytest.mark.parametrize("shape", [(), (3,), (0, SIZE), (SIZE,), (2, SIZE)])
def test_one_array_in_the_place_of_two(shape: tuple[int, ...]) -> None:
    add, x = on(one_process, functions.added_in_place), np.ones(shape, np.float32)
    program = jitted(lambda x: add(x, x))
    for _ in range(2):
        np.testing.assert_array_equal(program(tf.constant(x)), 2 * x)
