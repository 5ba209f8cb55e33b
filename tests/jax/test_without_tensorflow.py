"""hostcall.jax in an environment without TensorFlow: `make test-jax` has one."""

import concurrent.futures
import ctypes
import importlib
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.errors import raising
from tests.support.jax.helpers import X, each_mode, failure, struct
from tests.support.native_code import functions, handlers

INSTALL = r"pip install 'hostcall\[cpu\]'"


def test_there_is_no_tensorflow() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tensorflow")


@pytest.mark.parametrize("name", ["explain", "export", "bind", "configure", "rewrite"])
def test_names_that_need_it_say_what_to_install(name: str) -> None:
    assert name in dir(hostcall)
    with pytest.raises(ImportError, match=INSTALL):
        getattr(hostcall, name)


@pytest.mark.parametrize(
    "bridge", [hostcall.jax.to_tf, hostcall.jax.from_tf], ids=["to_tf", "from_tf"]
)
def test_bridges_say_what_to_install(bridge: Any) -> None:
    with pytest.raises(ImportError, match=INSTALL) as raised:
        bridge(jnp.negative)
    assert f"hostcall.jax.{bridge.__name__} needs TensorFlow" in str(raised.value)


def test_switching_off_and_on() -> None:
    program = jax.jit(lambda x: jax.lax.map(lambda v: hostcall.jax.call(np.negative, v, v), x))
    hostcall.disable()
    with pytest.raises(NotImplementedError):
        program(X)
    hostcall.enable()
    np.testing.assert_array_equal(program(X), -X)


@each_mode
@pytest.mark.parametrize(
    "result",
    [lambda x: x, lambda x: struct(x.shape, x.dtype), struct(X.shape)],
    ids=["like", "function", "struct"],
)
def test_callbacks(mode: Any, result: Any) -> None:
    minus = hostcall.callback(np.negative, result=result, stateful=False)
    times = hostcall.callback(
        np.multiply,
        result=lambda x, y: x,
        stateful=False,
        grad=lambda inputs, results, upstream: (upstream * inputs[1], upstream * inputs[0]),
    )
    np.testing.assert_array_equal(mode(minus)(X), -X)
    np.testing.assert_array_equal(mode(jax.vmap(minus))(jnp.stack([X, X])), jnp.stack([-X, -X]))
    np.testing.assert_array_equal(mode(jax.grad(lambda x: times(x, x).sum()))(X), 2 * X)


def test_callbacks_of_numpys_arrays_return_jaxs() -> None:
    doubled = hostcall.callback(lambda x: 2 * x, result=lambda x: x)
    assert isinstance(doubled(np.ones(3, np.float32)), jax.Array)


def test_structures_and_keywords() -> None:
    def added(pair: dict[str, Any], *, scale: float = 1.0, sign: int = 1) -> Any:
        return [sign * scale * (pair["a"] + pair["b"]), pair["a"]]

    callback = hostcall.callback(added, result=lambda pair: [pair["a"], pair["a"]])
    total, first = jax.jit(lambda x: callback({"a": x, "b": x}, scale=x[1], sign=-1))(X)
    np.testing.assert_array_equal(total, -2 * X)
    np.testing.assert_array_equal(first, X)


def test_symbolic_sizes_reach_shape_functions() -> None:
    doubled = hostcall.callback(lambda x: 2 * x, result=lambda x: struct((*x.shape, 2)))
    (size,) = jax.export.symbolic_shape("n")
    traced = jax.eval_shape(doubled, struct((size,)))
    assert traced.shape == (size, 2)


def test_a_bounded_size_is_nothing_for_jax() -> None:
    spec = hostcall.BoundedSpec([3, 4], np.float32, dynamic_dims=[-1])
    assert (spec.shape, spec.dtype, spec.dynamic_dims) == ((3, 4), np.dtype(np.float32), (1,))
    assert spec == hostcall.BoundedSpec((3, 4), "float32", [1])
    assert spec.tensor_spec().shape == (3, None)
    shapes: list[Any] = [None, [None], [-1]]
    for shape in shapes:
        with pytest.raises(ValueError, match="BoundedSpec"):
            hostcall.BoundedSpec(shape, np.float32)
    distinct = hostcall.callback(np.unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
    with pytest.raises(ValueError, match="JAX has no arrays whose size only the call tells"):
        distinct(X)


def test_eager_callbacks_are_for_tensorflow() -> None:
    eager = hostcall.callback(lambda x: x, result=lambda x: x, kind="eager")
    with pytest.raises(TypeError, match="kind='eager'"):
        eager(X)


def test_a_result_without_a_dtype() -> None:
    with pytest.raises(TypeError, match="and not as a jax"):
        hostcall.callback(np.negative, result=[3])(X)


def test_native_code() -> None:
    floats = ctypes.POINTER(ctypes.c_float)
    function = functions()["next_float32"]
    function.argtypes, function.restype = (floats, floats, ctypes.c_int64), None
    add = hostcall.native(function, result=lambda x: x)
    np.testing.assert_array_equal(add(np.asarray(X)), X + 1)
    np.testing.assert_array_equal(jax.jit(lambda x: add(x) * 2)(X), (X + 1) * 2)
    np.testing.assert_array_equal(hostcall.jax.call(add, X, X), X + 1)
    out = np.zeros(4, np.float32)
    assert add(np.asarray(X), out=out) is out
    with pytest.raises(TypeError, match="points to float32, and not to int32"):
        add(np.arange(3, dtype=np.int32))


def test_handlers_of_xlas_ffi() -> None:
    compiled = handlers(jax.ffi.include_dir())
    attributes = {
        "word": "grüße",
        "factor": 2.0,
        "offset": 2**40,
        "negative": True,
        "half": np.float64(0.5),
    }
    scale = hostcall.native(
        jax.ffi.pycapsule(compiled["scale"]), result=lambda x: x, attributes=attributes
    )
    expected = -(X * 2 + np.float32(2**40))
    for _ in range(2):
        np.testing.assert_array_equal(scale(np.asarray(X)), expected)
        np.testing.assert_array_equal(jax.jit(scale)(X), expected)
    fail = hostcall.native(jax.ffi.pycapsule(compiled["fail"]), result=lambda x: x)
    kinds = {3: ValueError, 8: MemoryError, 12: NotImplementedError, 13: RuntimeError}
    for code, kind in kinds.items():
        with pytest.raises(kind, match=f"^no signal from sensor {code}"):
            fail(np.array([code], np.int32))
    with pytest.raises(TypeError, match="the capsule is named 'other'"):
        hostcall.native(_capsule(b"other"), result=lambda x: x)


def test_executors_and_maps() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        square = hostcall.map(np.square, executor=pool)
        np.testing.assert_array_equal(square(np.asarray(X)), X**2)
        program = jax.jit(lambda x: hostcall.jax.call(np.square, x, x, executor=pool))
        np.testing.assert_array_equal(program(X), X**2)
        mapped = hostcall.map(hostcall.callback(np.negative, result=lambda x: x), executor=pool)
        np.testing.assert_array_equal(jax.jit(mapped)(X), -X)


def test_declarations_and_calls_that_nobody_waits_for() -> None:
    log: list[Any] = []

    @hostcall.declare(timeout=60.0)
    def function(x: Any) -> Any:
        return x

    def keep(x: Any) -> None:
        log.append(x.tolist())

    note = hostcall.callback(keep, result=[], wait=False)
    jax.jit(lambda x: [note(function(x)), x][1])(X)
    jax.effects_barrier()
    hostcall.barrier()
    assert log == [X.tolist()]
    [row] = [row for row in hostcall.stats().unawaited if ".keep" in row.callback]
    assert (row.run, row.errors) == (1, 0)


def test_timeouts() -> None:
    late = hostcall.callback(lambda x: time.sleep(600), result=lambda x: x, timeout=0.01)
    assert "DEADLINE_EXCEEDED" in str(failure(jax.jit(late), X))


def test_errors_and_statistics() -> None:
    error = KeyError("no such thing")
    raised = failure(jax.jit(lambda x: hostcall.jax.call(raising(error), x, x)), X)
    assert hostcall.last_error(raised) is error
    assert re.search(rf"called at {re.escape(__file__)}:\d+", str(raised))
    hostcall.collect_stats()
    program = jax.jit(lambda x: hostcall.jax.call(np.cos, x, x, name="cosine"))
    program(X), program(X)
    found = hostcall.stats(reset=True)
    hostcall.collect_stats(False)
    assert [row.calls for row in found if "cosine" in row.callback] == [2]
    assert found.compilations == []


def _capsule(name: bytes) -> object:
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return new(1, name, None)
