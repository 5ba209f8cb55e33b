"""`hostcall.map`, `retries=` and `hostcall.stats().executors` on executors of all kinds."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support import executors
from tests.support.helpers import jitted

X = tf.reshape(tf.range(14.0), [7, 2])

each_kind = pytest.mark.parametrize(
    "made", [executors.forkserver, executors.loky_pool, executors.on_dask]
)


@each_kind
def test_a_batch_is_divided(made: Any) -> None:
    place = hostcall.map(functions.place_of_each, executor=made, chunks=2)
    program = jitted(hostcall.callback(place, result=tf.TensorSpec([7, 2], tf.float64)))
    np.testing.assert_array_equal(program(X)[:, 1], [3, 3, 3, 4, 4, 4, 4])


@each_kind
def test_pure_calls_are_made_again(made: Any, tmp_path: Path) -> None:
    once = functools.partial(functions.ends_once, folder=str(tmp_path))
    double = hostcall.callback(once, result=lambda x: x, executor=made, stateful=False, retries=2)
    np.testing.assert_array_equal(jitted(double)(X), 2.0 * X)


@each_kind
def test_calls_are_counted(made: Any) -> None:
    lasts = hostcall.callback(
        functions.lasts_and_doubles, result=lambda x: x, executor=made, stateful=False
    )
    hostcall.collect_stats()
    try:
        np.testing.assert_array_equal(jitted(lasts)(X), 2.0 * X)
        [row] = hostcall.stats(reset=True).executors
    finally:
        hostcall.collect_stats(False)
    assert row.calls == 1
    assert row.running_seconds >= 0.01
    assert row.waiting_seconds > 0.0
