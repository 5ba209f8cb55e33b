"""Calls outside of programs: the like of an earlier call finds its program again."""

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from hostcall.jax import _eager, _names
from tests.support.jax.helpers import X, struct

call = hostcall.jax.call


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The placements of the arguments for which programs of eager calls are compiled."""
    jax.clear_caches()
    seen: list[Any] = []
    compile_program = _eager.EagerProgram._compile

    def note(self: Any, places: Any) -> Any:
        seen.append(places)
        return compile_program(self, places)

    monkeypatch.setattr(_eager.EagerProgram, "_compile", note)
    return seen


def doubled(x: Any) -> Any:
    return x * 2


def twice(x: Any, **options: Any) -> Any:
    """Call in one line of code, so that calls are alike but for what is given here."""
    return call(doubled, struct(x.shape, x.dtype), x, **options)


@pytest.mark.parametrize("options", [{}, {"pure": True}, {"ordered": True}, {"name": "a name"}])
def test_like_calls_share_a_program(compiled: list[Any], options: Any) -> None:
    for factor in range(3):
        np.testing.assert_array_equal(twice(X * factor, **options), X * factor * 2)
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: twice(X[:2]),
        lambda: twice(X.astype(np.int32)),
        lambda: twice(X, pure=True),
        lambda: twice(X, name="another"),
        lambda: call(doubled, struct(X.shape, X.dtype), X),
        lambda: twice(jax.device_put(X, jax.devices()[0])),
    ],
    ids=["a shape", "a dtype", "an option", "a name", "a line", "a device"],
)
def test_other_calls_have_programs_of_their_own(compiled: list[Any], other: Any) -> None:
    twice(X)
    np.testing.assert_array_equal(other(), 2 * X[: other().size])
    assert len(compiled) == 2


def test_structures_and_several_results(compiled: list[Any]) -> None:
    def sums(given: Any, factor: Any) -> Any:
        return {"sum": given["a"] + given["b"][0], "factor": np.int32(factor)}

    declared = {"factor": struct([], np.int32), "sum": struct(X.shape, X.dtype)}
    for factor in (1, 2):
        got = call(sums, declared, {"a": X, "b": [X * factor]}, jnp.int32(factor))
        np.testing.assert_array_equal(got["sum"], X * (1 + factor))
        assert got["factor"] == factor
    assert len(compiled) == 1


def test_the_dtypes_that_jax_has_now() -> None:
    values = np.arange(3.0)
    with jax.enable_x64(True):
        assert call(doubled, struct([3], np.float64), values).dtype == np.float64
    with pytest.raises(ValueError, match=r"float64.*jax_enable_x64"):
        call(doubled, struct([3], np.float64), values)


def test_each_failing_call_names_its_own_line() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("none today")

    calls: list[Any] = [
        lambda: call(fail, struct([4], X.dtype), X),
        lambda: call(fail, struct([4], X.dtype), X),
    ]
    for one in (*calls, *calls):
        line = one.__code__.co_firstlineno
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"called at .*calls.py:{line}"):
            one()


def test_a_function_that_is_equal_is_the_same(compiled: list[Any]) -> None:
    class Scale:
        def __init__(self) -> None:
            self.factor = 1

        def times(self, x: Any) -> Any:
            return x * np.float32(self.factor)

    scale = Scale()
    for factor in (2, 3):
        scale.factor = factor
        got = call(scale.times, struct(X.shape, X.dtype), X)
        np.testing.assert_array_equal(got, X * factor)
    assert len(compiled) == 1


def test_jaxs_settings(compiled: list[Any]) -> None:
    with jax.disable_jit():
        np.testing.assert_array_equal(twice(X), X * 2)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        twice(X * np.nan)
    assert len(compiled) == 1


def test_functions_go_with_jaxs_caches() -> None:
    class Function:
        def __call__(self, x: Any) -> Any:
            return x * 2

    function = Function()
    call(function, struct(X.shape, X.dtype), X)
    gone = weakref.ref(function)
    del function
    jax.clear_caches()
    gc.collect()
    assert gone() is None


def test_without_jaxs_names_calls_take_the_long_way(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    has = _names.has
    monkeypatch.setattr(_names, "has", lambda feature: feature != _names.EAGER and has(feature))
    np.testing.assert_array_equal(twice(X), X * 2)
    assert not compiled
