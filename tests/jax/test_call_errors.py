"""hostcall.jax.call: what is said of what goes wrong."""

import functools
import re
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.errors import DetailedError, assert_says, raising
from tests.support.jax.helpers import X, each_mode, failure, struct

call = hostcall.jax.call


@each_mode
@pytest.mark.parametrize("options", [{}, {"pure": True}, {"ordered": True}], ids=str)
def test_an_exception_is_told_and_kept(mode: Any, options: Any) -> None:
    error = DetailedError("the reason", code=42)
    program = mode(lambda x: call(raising(error), x, x, **options))
    try:
        raised = failure(program, X)
    finally:
        # What JAX keeps of a failed program's tokens must not fail the tests that follow.
        if options.get("ordered"):
            jax.clear_caches()
    assert_says(raised, "DetailedError: the reason", "INVALID_ARGUMENT")
    assert hostcall.last_error(raised) is error


@each_mode
@pytest.mark.parametrize("options", [{}, {"pure": True}, {"ordered": True}], ids=str)
@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, GeneratorExit])
def test_the_end_of_an_iterator_is_told_and_kept(mode: Any, options: Any, kind: Any) -> None:
    elements = iter([X])

    def load() -> Any:
        for element in elements:
            return element
        raise kind("no more")

    program = mode(lambda: call(load, X, **options))
    try:
        np.testing.assert_array_equal(program(), X)
        raised = failure(program)
    finally:
        if options.get("ordered"):
            jax.clear_caches()
    assert_says(raised, f"{kind.__name__}: no more", "returns the exception itself")
    assert type(hostcall.last_error(raised)) is kind
    assert hostcall.last_error() is hostcall.last_error(raised)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (np.zeros(3, np.float32), r"shape \(3,\), but its declared shape is \(4,\)"),
        (np.zeros(4, np.float16), "is half, but expects float"),
        (None, "returns 0 values, but expects to see 1"),
        ((X, X), "returns 2 values, but expects to see 1"),
    ],
)
@each_mode
def test_wrong_results(mode: Any, returned: Any, text: str) -> None:
    def wrong(x: Any) -> Any:
        return returned

    raised = failure(mode(lambda x: call(wrong, x, x)), X)
    assert re.search(text, str(raised))
    assert "hostcall.jax.call of test_wrong_results.<locals>.wrong" in str(raised)
    assert f"called at {__file__}" in str(raised)


def test_another_structure() -> None:
    program = jax.jit(lambda x: call(lambda x: {"b": x}, {"a": x}, x))
    raised = failure(program, X)
    assert_says(raised, "{'b': *}", "{'a': *}", "Write:\n    return {'a': ...}")


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (hostcall.BoundedSpec([3], np.float32), ValueError, "BoundedSpec .* JAX has no arrays"),
        (struct([-3]), ValueError, r"shape \(-3,\), which has a negative size"),
        (np.array(["a"]), TypeError, "is of dtype <U1, and JAX has arrays of numbers alone"),
    ],
    ids=str,
)
def test_results_that_jax_cannot_have(result: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as raised:
        call(np.sin, result, X)
    assert f"called at {__file__}" in str(raised.value)


def test_values_where_none_are_declared() -> None:
    program = jax.jit(lambda x: [call(lambda x: x, None, x, ordered=True), x][1])
    assert "returns 1 values" in str(failure(lambda: [program(X), jax.effects_barrier()][0]))
    jax.clear_caches()


def test_a_timeout() -> None:
    never = threading.Event()
    waiting = hostcall.callback(
        lambda x: [never.wait(60), x][1], result=lambda x: x, timeout=0.05, stateful=False
    )
    try:
        raised = str(failure(jax.jit(waiting), X))
    finally:
        never.set()
    assert_says(raised, "DEADLINE_EXCEEDED", "has not returned within its timeout")


def test_vmap_that_nobody_has_chosen() -> None:
    with pytest.raises(NotImplementedError, match='vmap_method="sequential"'):
        jax.vmap(lambda x: call(np.sin, x, x, pure=True))(X)
    with pytest.raises(ValueError, match="have no order of their own"):
        jax.vmap(lambda x: call(np.sin, x, x, ordered=True, vmap_method="sequential"))(X)
    with pytest.raises(ValueError, match="vmap_method='all' is not one of"):
        call(np.sin, X, X, vmap_method="all")


def test_arguments() -> None:
    with pytest.raises(TypeError, match="wants a function, and not 3"):
        call(3, X, X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ordered=True says .* pure=True"):
        call(np.sin, X, X, ordered=True, pure=True)
    with pytest.raises(TypeError, match=r"declared as \(4,\)|declared as 4"):
        call(np.sin, (4,), X)
    with pytest.raises(ValueError, match="float64, which JAX only has with jax_enable_x64"):
        call(np.sin, struct([4], np.float64), X)
    with pytest.raises(TypeError, match="'text' is not an array"):
        call(np.sin, X, "text")
    with pytest.raises(TypeError, match="neither an executor"):
        call(np.sin, X, X, executor=3)


@pytest.mark.parametrize("dtype", [jnp.float32, np.float32, float, np.dtype("float32")], ids=repr)
def test_results_declared_as_a_dtype_alone(dtype: Any) -> None:
    for result in (dtype, [dtype], {"a": dtype}, lambda x: dtype):
        with pytest.raises(
            TypeError, match=r"must say its shape, and .*float.* is a dtype alone"
        ) as e:
            call(np.sin, result, X)
        assert re.search(r"Write jax\.ShapeDtypeStruct\(\(\), jnp\.float(32|64)\)", str(e.value))
        with pytest.raises(TypeError, match="must say its shape"):
            hostcall.callback(np.sin, result=result)(X)


def test_functions_without_a_hash_work_too() -> None:
    class Scaled:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Any) -> Any:
            return x * np.float32(3)

    np.testing.assert_array_equal(call(Scaled(), X, X), 3 * X)
    np.testing.assert_array_equal(call(functools.partial(np.multiply, X), X, X), X * X)


@pytest.mark.parametrize("platforms", [("tpu",), ("rocm",), ("cpu", "tpu")], ids=str)
def test_elsewhere_than_on_cpus_and_nvidia_gpus(platforms: tuple[str, ...]) -> None:
    traced = jax.jit(lambda x: call(np.sin, x, x)).trace(jnp.zeros(4))
    with pytest.raises(
        NotImplementedError, match=f"for {platforms[-1]}, and only programs for CPUs"
    ):
        traced.lower(lowering_platforms=platforms)
