"""`borrow=True` and `out=True`: arrays that somebody keeps, and the memory that they lie in."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import _library
from tests.support.e2e.borrowed_views_programs import (
    LARGE,
    every_size,
    every_way,
    in_programs,
    like,
    numbers,
    one,
    values,
)
from tests.support.helpers import assert_same, failure, jitted

# Arrays that are kept.

KEEPERS: dict[str, Callable[[np.ndarray], Any]] = {
    "itself": lambda x: x,
    "a part": lambda x: x[3:],
    "a memoryview": lambda x: x.data,
    "an iterator": lambda x: x.flat,
    "a view of a view": lambda x: np.asarray(x.data)[::2],
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@every_way
@every_size
def test_a_borrowed_array_that_is_kept_is_an_error(way: Any, size: int, keep: Any) -> None:
    kept: list[Any] = []

    def keeps(x: np.ndarray) -> np.ndarray:
        kept.append(keep(x))
        return x + 1.0

    run = way(one(keeps))
    error = failure(run, values(size))
    assert isinstance(error, tf.errors.InvalidArgumentError)
    for text in ("still refers to an array", "np.array(x)", "keeps", __file__):
        assert text in str(error)
    # And it may be looked at for as long as one likes: nothing has come in its place.
    others = [run_over(values(size)) for _ in range(20)]
    expected = np.array(list(keep(numbers(size) * 2)), np.float32)
    assert_same(np.array(list(kept[0]), np.float32), expected)
    del others


def run_over(x: tf.Tensor) -> tf.Tensor:
    """Takes memory and fills it, as what comes next would."""
    return x * 0.0 - 1.0


@every_way
@every_size
def test_an_out_array_that_is_kept_is_an_error(way: Any, size: int) -> None:
    kept: list[np.ndarray] = []

    def keeps(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.append(out[:2])

    error = failure(way(one(keeps, out=True)), values(size))
    assert "still refers to an array" in str(error)
    others = [run_over(values(size)) for _ in range(20)]
    assert_same(kept[0], numbers(size)[:2] * 2)
    kept[0][...] = 5.0  # writable for ever, and nobody's but ours
    assert all((other.numpy() == -1.0).all() for other in others)


@every_way
def test_one_of_several_out_arrays_that_is_kept_is_an_error(way: Any) -> None:
    kept: list[Any] = []

    def keeps(x: np.ndarray, out: tuple[np.ndarray, np.ndarray]) -> None:
        out[0][...], out[1][...] = x, x
        kept.append(out if not kept else out[1])

    hostcall.declare(keeps, out=True, result=lambda x: [x, x])
    run = way(lambda x: tf.numpy_function(keeps, [x], [tf.float32] * 2))
    for _ in range(2):
        assert "still refers to an array" in str(failure(run, values(LARGE)))


@every_way
def test_a_cycle_that_a_function_leaves_behind_is_no_error(way: Any) -> None:
    def leaves(x: np.ndarray) -> np.ndarray:
        cycle: list[Any] = [x]
        cycle.append(cycle)
        return x + 1.0

    gc.disable()
    try:
        assert_same(way(one(leaves))(values(LARGE)).numpy(), numbers(LARGE) * 2 + 2)
    finally:
        gc.enable()


@every_way
def test_an_exception_may_hold_what_was_lent(way: Any) -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise KeyError("why")

    error = failure(way(one(fails)), values(LARGE))
    frames = hostcall.last_error(error).__traceback__  # type: ignore[union-attr]
    others = [run_over(values(LARGE)) for _ in range(20)]
    while frames is not None and "x" not in frames.tb_frame.f_locals:
        frames = frames.tb_next
    assert frames is not None
    assert_same(np.array(frames.tb_frame.f_locals["x"]), numbers(LARGE) * 2)
    del others


def test_the_program_goes_on_after_an_array_was_kept() -> None:
    kept: list[np.ndarray] = []
    keep = [True]

    def sometimes(x: np.ndarray) -> np.ndarray:
        if keep[0]:
            kept.append(x)
        return x + 1.0

    run = jitted(one(sometimes))
    for again in range(10):
        keep[0] = again % 2 == 0
        if keep[0]:
            failure(run, values(LARGE))
        else:
            assert_same(run(values(LARGE)).numpy(), numbers(LARGE) * 2 + 2)
    for array in kept:
        assert_same(array, numbers(LARGE) * 2)


# Lifetime.


@pytest.mark.cpu("the memory of variables on another device is not lent")
@in_programs
def test_memory_is_given_back() -> None:
    def keeps(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.append((x, out))

    provided_memory = _library.load("hostcall._tensorflow").provided_memory
    kept: list[Any] = []
    run = jitted(one(keeps, out=True))
    gc.collect()
    before = provided_memory()
    for _ in range(5):
        failure(run, values(LARGE))
    assert provided_memory() > before
    kept.clear()
    gc.collect()
    assert provided_memory() == before


def test_results_outlive_their_program() -> None:
    def double(x: np.ndarray, out: np.ndarray) -> None:
        np.multiply(x, 2.0, out=out)

    def make() -> tf.Tensor:
        hostcall.declare(double, borrow=True, out=True, result=like)
        return jitted(lambda x: tf.numpy_function(double, [x], tf.float32))(values(LARGE))

    results = [make() for _ in range(5)]
    gc.collect()
    for result in results:
        assert_same(result.numpy(), numbers(LARGE) * 2)


def test_nothing_of_a_run_is_used_when_it_has_ended() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.e2e.borrowed_views_child"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr[-3000:]
