"""Python functions in the traces of jax.profiler, each call an event with the function's name."""

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from hostcall.jax import _profiling
from hostcall_runtime import _library

runtime = _library.load("hostcall_runtime._runtime")

X = np.array([1.0, 2.0, 3.0], np.float32)
EVENT = "hostcall.jax.call of "


def calling(function: Callable[..., Any], **given: Any) -> Any:
    """A jitted program of one call, which was compiled and has run."""
    program = jax.jit(lambda x: hostcall.jax.call(function, jax.typeof(x), x, **given) * 2)
    jax.block_until_ready(program(X))
    return program


def events(folder: Path) -> list[str]:
    """The names of hostcall's events in the one trace of a folder, with no place of theirs."""
    (file,) = folder.rglob("*.trace.json.gz")
    shown = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = [event.get("name", "") for event in shown]
    return [name.removeprefix(EVENT).partition(" ")[0] for name in names if EVENT in name]


def named_in_traces(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize("given", [{}, {"pure": True}, {"ordered": True}], ids=str)
def test_calls_of_a_program_are_events_while_a_trace_is_taken(given: Any, tmp_path: Path) -> None:
    program = calling(named_in_traces, **given)
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(2):
            np.testing.assert_array_equal(program(X), 2 * (X + 1))
    program(X)
    assert events(tmp_path) == 2 * ["named_in_traces"]


def test_each_call_of_a_loop_is_an_event(tmp_path: Path) -> None:
    def body(_: int, x: Any) -> Any:
        return hostcall.jax.call(named_in_traces, jax.typeof(x), x)

    program = jax.jit(lambda x: jax.lax.fori_loop(0, 5, body, x))
    program(X).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        np.testing.assert_array_equal(program(X), X + 5)
    assert events(tmp_path) == 5 * ["named_in_traces"]


def test_calls_outside_of_programs_are_events(tmp_path: Path) -> None:
    x = jnp.asarray(X)
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(2):
            y = hostcall.jax.call(named_in_traces, jax.typeof(x), x)
            np.testing.assert_array_equal(y, X + 1)
    assert events(tmp_path) == 2 * ["named_in_traces"]


def test_calls_that_fail_and_calls_of_calls_are_events(tmp_path: Path) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no")

    fails = jax.jit(lambda x: hostcall.jax.call(fail, jax.typeof(x), x))
    inner = calling(named_in_traces)

    def outer(x: Any) -> Any:
        return inner(x) + jnp.float32(0)

    program = calling(outer)
    with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: no"):
        jax.block_until_ready(fails(X))
    with jax.profiler.trace(str(tmp_path)):
        np.testing.assert_array_equal(program(X), 4 * (X + 1))
        with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: no"):
            jax.block_until_ready(fails(X))
    functions = [outer, named_in_traces, fail]
    assert sorted(events(tmp_path)) == sorted(function.__qualname__ for function in functions)


@pytest.fixture
def _untraced() -> Iterator[None]:
    yield
    runtime.annotate(None)


class Broken:
    """An event that cannot be made, begun or ended."""

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def __call__(self, label: str) -> "Broken":
        return self._or_fail("made")

    def __enter__(self) -> "Broken":
        return self._or_fail("begun")

    def __exit__(self, *_: object) -> None:
        self._or_fail("ended")

    def _or_fail(self, moment: str) -> "Broken":
        if moment == self.fails:
            raise RuntimeError(moment)
        return self


@pytest.mark.parametrize("moment", ["made", "begun", "ended"])
@pytest.mark.usefixtures("_untraced")
def test_a_call_does_not_fail_because_its_event_does(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(str(raised.exc_value)))
    monkeypatch.setattr(_profiling, "look", lambda: None)
    program = calling(named_in_traces)
    runtime.annotate(Broken(moment))
    np.testing.assert_array_equal(program(X), 2 * (X + 1))
    assert told == [moment]
