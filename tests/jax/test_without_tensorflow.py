"""hostcall.jax in an environment without TensorFlow: the session `jax` of nox has one."""

import ctypes
import importlib
import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hostcall.jax
from tests.support.jax.helpers import X, struct
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


def test_doctor_tries_a_call() -> None:
    command = [sys.executable, "-m", "hostcall", "doctor", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(ended.stdout)
    assert (report["tensorflow"], report["calls"]) == (None, {"JAX": ""})
    assert report["jax"] == {"version": jax.__version__, "problem": None}
    assert ended.stderr == ""


def test_switching_off_and_on() -> None:
    program = jax.jit(lambda x: jax.lax.map(lambda v: hostcall.jax.call(np.negative, v, v), x))
    hostcall.disable()
    with pytest.raises(NotImplementedError):
        program(X)
    hostcall.enable()
    np.testing.assert_array_equal(program(X), -X)


def test_callbacks_of_numpys_arrays_return_jaxs() -> None:
    doubled = hostcall.callback(lambda x: 2 * x, result=lambda x: x)
    assert isinstance(doubled(np.ones(3, np.float32)), jax.Array)


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
    attributes = {"word": "grüße", "factor": 2.0, "offset": 3, "negative": True}
    scale = hostcall.native(
        jax.ffi.pycapsule(compiled["scale"]),
        result=lambda x: x,
        attributes={**attributes, "half": np.float64(0.5)},
    )
    np.testing.assert_array_equal(scale(np.asarray(X)), -(X * 2 + 3))
    np.testing.assert_array_equal(jax.jit(scale)(X), -(X * 2 + 3))
    fail = hostcall.native(jax.ffi.pycapsule(compiled["fail"]), result=lambda x: x)
    kinds = {3: ValueError, 8: MemoryError, 12: NotImplementedError, 13: RuntimeError}
    for code, kind in kinds.items():
        with pytest.raises(kind, match=f"^no signal from sensor {code}"):
            fail(np.array([code], np.int32))
