"""hostcall_mlir.load: what goes wrong in callbacks, and on devices."""

import gc
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hostcall_mlir
from hostcall_runtime import prepared
from tests.support.exported.programs import F3, FUNCTIONS, TRIPLE, load, make, with_call
from tests.support.fate import Fate

ERRORS = {
    "fail": "KeyError: 'no such thing'",
    "wrong_dtype": f"0-th value returned by {FUNCTIONS}:wrong_dtype is int16, but expects float",
    "wrong_shape": "has shape (7,), but its declared shape is (3,)",
    "nothing": "returns 0 values, but expects to see 1 values",
    "both": "returns 2 values, but expects to see 1 values",
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_the_same_partitioned_or_not_and_names_the_line(name: str, loaded: Any) -> None:
    program = loaded(make(with_call(name)))
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError) as raised:
            program.call(F3)
        assert ERRORS[name] in str(raised.value)
        assert str(raised.value).count("called at model.py:10") == 1
        assert "hostcall_mlir" not in str(raised.value)
        if name == "fail":
            assert repr(raised.value.__cause__) == "KeyError('no such thing')"
            assert hostcall_mlir.last_error(raised.value) is raised.value.__cause__


def test_structure_of_results_that_is_another_one_is_told(loaded: Any) -> None:
    program = loaded(make(with_call("both"), of_callbacks={"results": {"dict": {"a": 0}}}))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="a dict of the keys \\['a'\\] is expected"
    ):
        program.call(F3)


def test_out_that_is_not_used_is_told(loaded: Any) -> None:
    program = loaded(make(with_call("forget_out"), of_callbacks={"out": True}))
    with pytest.raises(jax.errors.JaxRuntimeError, match="returns a value that is not `out`"):
        program.call(F3)


def test_call_that_takes_too_long_ends(loaded: Any) -> None:
    made = make(with_call("sleep"), of_callbacks={"timeout": 0.05})
    released = threading.Event()
    waiting = {f"{FUNCTIONS}:sleep": lambda x: released.wait()}
    program = loaded(made, callbacks=waiting)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"within its timeout of 0\.05 s"):
        program.call(F3)
    released.set()


def test_interrupt_in_a_callback_comes_out_as_it_is(loaded: Any) -> None:
    program = loaded(make(with_call("interrupt")))
    with pytest.raises(KeyboardInterrupt):
        program.call(F3)


def test_callbacks_live_as_long_as_the_program(loaded: Any) -> None:
    class Function:
        def __call__(self, x: Any) -> Any:
            return x

    function = Function()
    fate = Fate(function)
    gc.collect()
    before = prepared().size()
    program: Any = loaded(make(TRIPLE), callbacks={f"{FUNCTIONS}:triple": function})
    del function
    gc.collect()
    np.testing.assert_array_equal(program.call(F3), F3)
    del program
    fate.assert_goes()
    assert prepared().size() == before


def test_device_that_is_none_is_told(tmp_path: Path) -> None:
    device: Any = "cpu"
    with pytest.raises(TypeError, match=r"device is 'cpu', and has to be one of jax\.devices"):
        load(make(TRIPLE), tmp_path, device=device)


def test_partitioned_program_without_a_cpu_beside_the_device_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hostcall_mlir import loading

    def no_backend(**_: Any) -> Any:
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(loading, "_WITH_HOST_CALLS", ())
    monkeypatch.setattr(jax, "local_devices", no_backend)
    with pytest.raises(hostcall_mlir.ProgramError, match="JAX_PLATFORMS=cpu,cpu"):
        load(make(TRIPLE), tmp_path, partitioned=True)


def test_what_xla_cannot_compile_is_an_error(loaded: Any) -> None:
    text = """
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @nobody(%x) {api_version = 4 : i32, backend_config = {}}
    : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
"""
    with pytest.raises(hostcall_mlir.ProgramError, match="XLA cannot compile the program for"):
        loaded(make(text))
