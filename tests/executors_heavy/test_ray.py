"""Functions on Ray: the adapter is the one of docs/parallel.md."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support.helpers import MODES, eagerly, failure
from tests.support.pages import ROOT, read

X = tf.constant([1.0, 2.0, 3.0])

each_mode = pytest.mark.parametrize("mode", [*MODES, eagerly])


@pytest.fixture(scope="module")
def executor() -> Iterator[Any]:
    ray.init(
        num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}}
    )
    page = read("docs/parallel.md")
    lines = re.search(r"^@ray\.remote.*?(?=^hostcall\.declare)", page, re.DOTALL | re.MULTILINE)
    assert lines is not None
    names: dict[str, Any] = {"ray": ray}
    exec(textwrap.dedent(lines[0]), names)
    yield names["OnRay"]()
    ray.shutdown()


def on(executor: Any, function: Any, **how: Any) -> Any:
    return hostcall.callback(function, result=lambda x: x, executor=executor, **how)


@each_mode
def test_values(mode: Any, executor: Any) -> None:
    for function in (functions.doubled, lambda x: x * 2):
        double = on(executor, function)
        np.testing.assert_array_equal(mode(lambda x, double=double: double(x))(X), 2.0 * X)
    np.testing.assert_array_equal(mode(on(executor, functions.makes_its_own))(X), X + 1.0)


@each_mode
def test_exceptions(mode: Any, executor: Any) -> None:
    error = failure(mode(on(executor, functions.fails)), tf.constant(5.0))
    raised = hostcall.last_error(error)
    assert isinstance(raised, functions.SimulatorError)
    assert raised.sensor == 5
    assert "in fails\n" in error.message


@each_mode
def test_a_worker_that_ends(mode: Any, executor: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    program = mode(on(executor, functools.partial(functions.exits, str(journal))))
    raised = hostcall.last_error(failure(program, X))
    assert isinstance(raised, hostcall.ExecutorError)
    assert "exits" in str(raised)
    assert len(journal.read_text().splitlines()) == 1
    np.testing.assert_array_equal(mode(on(executor, functions.doubled))(X), 2.0 * X)


def test_what_cannot_be_sent(executor: Any) -> None:
    for function in (functions.returns_a_lock, functions.raises_what_cannot_be_sent):
        raised = hostcall.last_error(failure(on(executor, function), X))
        assert isinstance(raised, hostcall.ExecutorError)
        assert "its worker cannot send that" in str(raised)


def test_late_calls(executor: Any) -> None:
    late = on(executor, functions.lasts, timeout=0.05)
    assert isinstance(hostcall.last_error(failure(late, tf.constant(0.5))), TimeoutError)
