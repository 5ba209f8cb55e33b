"""hostcall.native in JAX programs, which call it without Python."""

import ctypes
import functools
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.fate import Fate
from tests.support.native_code import functions, handlers, headers_of_ours

FLOATS = ctypes.POINTER(ctypes.c_float)
INTS = ctypes.POINTER(ctypes.c_int32)
SIZE = ctypes.c_int64
X = np.array([1.0, 2.0, 3.0], np.float32)

TARGET = "hostcall_native"
pytestmark = pytest.mark.cpu("programs for GPUs have no target of their own for it")


def same(x: Any) -> Any:
    return x


def of(name: str, *argtypes: Any, result: Any = same, restype: Any = None, **given: Any) -> Any:
    address = ctypes.cast(functions()[name], ctypes.c_void_p).value
    assert address is not None
    prototype = ctypes.CFUNCTYPE(restype, *argtypes)(address)
    prototype.argtypes, prototype.restype = argtypes, restype
    return hostcall.native(prototype, result=result, **given)


def next_float32() -> Any:
    return of("next_float32", FLOATS, FLOATS, SIZE)


def handler(name: str, **given: Any) -> Any:
    return hostcall.native(
        jax.ffi.pycapsule(handlers(headers_of_ours())[name]), result=same, **given
    )


def lowered(program: Any, *args: Any) -> str:
    text: str = jax.jit(program).lower(*args).as_text()
    return text


def test_a_program_calls_it_without_python() -> None:
    add = next_float32()
    for program in (add, lambda x: hostcall.jax.call(add, x, x)):
        text = lowered(program, X)
        assert f"@{TARGET}(" in text
        assert "@hostcall(" not in text
        np.testing.assert_array_equal(jax.jit(program)(X), X + 1)


@pytest.mark.parametrize(("ordered", "pure"), [(False, False), (True, False), (False, True)])
def test_in_loops_and_branches(ordered: bool, pure: bool) -> None:
    add = next_float32()

    def call(x: jax.Array) -> jax.Array:
        return hostcall.jax.call(add, x, x, ordered=ordered, pure=pure)

    def program(x: jax.Array) -> jax.Array:
        x = jax.lax.fori_loop(0, 10, lambda _, y: call(y), x)
        return jax.lax.cond(x[0] > 5, call, lambda y: y, x)

    np.testing.assert_array_equal(jax.jit(program)(X), X + 11)


@pytest.mark.parametrize(
    ("name", "x", "wrong", "text"),
    [
        ("later", X, -X, "negative, and late"),
        ("fail", np.zeros(1, np.int32), np.full(1, 3, np.int32), "no signal from sensor 3"),
    ],
    ids=["later", "fail"],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_handlers(name: str, x: Any, wrong: Any, text: str, ordered: bool) -> None:
    code = handler(name)

    def program(x: jax.Array) -> jax.Array:
        return hostcall.jax.call(code, x, x, ordered=ordered)

    assert f"@{TARGET}(" in lowered(program, x)
    called = jax.jit(program)(x)
    if name == "later":
        np.testing.assert_array_equal(called, x + 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.jit(program)(wrong)


def test_arrays_without_elements_are_null() -> None:
    def shapes(x: Any) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct((0, 3), np.float32), jax.ShapeDtypeStruct((4,), np.int32)]

    code = of("are_null", *[ctypes.c_void_p] * 2, INTS, SIZE, SIZE, result=shapes)
    _, null = jax.jit(code)(jnp.zeros((0, 3), np.float32))
    assert null.tolist() == [1, 1, 0, 3]


def test_several_arguments_and_no_result() -> None:
    scale = of("scale", FLOATS, FLOATS, FLOATS, SIZE, result=lambda x, factor: x)
    np.testing.assert_array_equal(jax.jit(scale)(X, np.float32(3)), X * 3)

    note = of("note", INTS, result=[])
    notes = jax.ShapeDtypeStruct((64,), np.int32)
    take = of("take_notes", INTS, result=notes)

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        def step(i: jax.Array, x: jax.Array) -> jax.Array:
            hostcall.jax.call(note, [], x + i, ordered=True)
            return x

        jax.lax.fori_loop(0, 5, step, x)
        return hostcall.jax.call(take, notes, ordered=True)

    taken = program(np.int32(10))
    assert taken[:5].tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_batches(method: str) -> None:
    # It wants one size: `method` decides how many arrays it gets.
    sizes = 1 if method == "sequential" else 2
    add = of("next_float32", FLOATS, FLOATS, *[SIZE] * sizes)
    batch = np.arange(6, dtype=np.float32).reshape(2, 3)

    def program(x: jax.Array) -> jax.Array:
        return hostcall.jax.call(add, x, x, pure=True, vmap_method=method)

    called = jax.jit(jax.vmap(program))(batch)
    if sizes == 1:
        np.testing.assert_array_equal(called, batch + 1)
    else:  # which counts by the first size alone
        np.testing.assert_array_equal(called.ravel()[:2], batch.ravel()[:2] + 1)


def test_a_status_is_an_error_and_the_next_call_works() -> None:
    root = of("root", INTS, INTS, restype=ctypes.c_int32)
    program = jax.jit(lambda x: hostcall.jax.call(root, x, x))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"returned status -4.*\n?.*hostcall.jax"):
        program(np.int32(-4))
    assert program(np.int32(17)) == 4


def test_what_the_code_cannot_take_is_an_error_when_the_program_is_compiled() -> None:
    add = next_float32()
    with pytest.raises(TypeError, match=r"points to float32, and not to int32.*test_native\.py"):
        lowered(add, np.arange(3, dtype=np.int32))
    with pytest.raises(
        TypeError,
        match=r"results are float32 of shape \(3,\), and here they are float32 of shape \(4,\)",
    ):
        lowered(lambda x: hostcall.jax.call(add, np.zeros(4, np.float32), x), X)
    with pytest.raises(TypeError, match="is of dtype int4, which native code cannot have"):
        lowered(add, jnp.zeros(3, jnp.int4))


def test_derivatives_are_refused_as_of_python_functions() -> None:
    with pytest.raises(ValueError, match="JAX knows no derivative"):
        jax.grad(lambda x: next_float32()(x).sum())(X)


def test_with_an_executor_python_calls_it() -> None:
    add = next_float32()
    with ThreadPoolExecutor(1) as pool:
        program = functools.partial(hostcall.jax.call, add, X, executor=pool)
        assert f"@{TARGET}(" not in lowered(program, X)
        np.testing.assert_array_equal(jax.jit(program)(X), X + 1)


def test_a_program_owns_the_code() -> None:
    add = next_float32()
    fate = Fate(add.owner)
    program = jax.jit(add)
    program(X)
    del add
    gc.collect()
    assert fate.lives()
    np.testing.assert_array_equal(program(X), X + 1)
    del program
    jax.clear_caches()
    fate.assert_goes()
