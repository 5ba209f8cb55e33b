"""hostcall_mlir: programs that are saved, their variables when loaded, and calls from threads."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hostcall_mlir
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import files, manifests
from tests.support.exported.programs import F3, FUNCTIONS, call, load, make, with_call
from tests.support.threads import in_threads

COUNTER = f"""
func.func public @main(%x: tensor<f32>, %v: tensor<f32>, %w: tensor<2xi64>)
    -> (tensor<f32>, tensor<f32>) {{
  %0 = stablehlo.add %v, %x : tensor<f32>
  %1 = {call("plus", "(tensor<f32>, tensor<f32>) -> tensor<f32>", "%0, %x", effect=True)}
  return %1, %0 : tensor<f32>, tensor<f32>
}}
"""
VARIABLES: dict[str, np.ndarray] = {"v": np.array(10, np.float32), "w": np.arange(2)}


@pytest.fixture
def counter(loaded: Any) -> Any:
    return loaded(make(COUNTER, variables=VARIABLES, assigns=["v"]))


def test_variables_are_read_and_assigned(counter: Any) -> None:
    assert counter.call(np.float32(1)) == 12
    assert counter.variables["v"] == 11
    counter.variables["v"] = np.float32(100)
    assert counter.call(np.float32(2)) == 104
    assert counter.variables["v"] == 102
    np.testing.assert_array_equal(counter.variables["w"], [0, 1])
    assert counter.variables["w"].dtype == np.int64


@pytest.mark.parametrize("name", sorted(custom_calls.ELEMENTS))
def test_variables_of_every_dtype(name: str, tmp_path: Path) -> None:
    scalar = f"tensor<{custom_calls.ELEMENTS[name]}>"
    type_ = scalar.replace("<", "<2x", 1)
    text = f"func.func public @main(%a: {type_}, %b: {scalar}) -> {type_} {{ return %a : {type_} }}"
    dtype = manifests.dtype_of(name)
    # `file` is also a parameter of the function that writes them.
    values = {"a/b:0": np.array([1, 2]).astype(dtype), "file": np.ones((), dtype)}
    program = load(make(text, variables=values), tmp_path)
    found = [program.variables["a/b:0"], program.call(), program.variables["file"]]
    for result, value in zip(found, [values["a/b:0"], *values.values()], strict=True):
        assert (result.dtype, result.shape) == (dtype, value.shape)
        np.testing.assert_array_equal(np.asarray(result), value)


def test_variables_that_are_not_those_of_the_program_are_told(counter: Any) -> None:
    counter.variables["V"] = np.float32(100)
    with pytest.raises(ValueError, match=r"predict has no variables \['V'\]: it has \['v', 'w'\]"):
        counter.call(np.float32(1))
    del counter.variables["V"]
    counter.variables["v"] = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=r"variable 'v' of predict is float32\[2\]"):
        counter.call(np.float32(1))
    del counter.variables["v"]
    with pytest.raises(ValueError, match=r"have no values any more: \['v'\]"):
        counter.call(np.float32(1))


def test_failing_call_assigns_nothing_and_leaves_the_program_sound(loaded: Any) -> None:
    def fails_once(x: Any, y: Any) -> Any:
        calls.append(x)
        if len(calls) == 1:
            raise KeyError("first")
        return x + y

    calls: list[Any] = []
    program = loaded(
        make(COUNTER, variables=VARIABLES, assigns=["v"]),
        callbacks={f"{FUNCTIONS}:plus": fails_once},
    )
    with pytest.raises(jax.errors.JaxRuntimeError):
        program.call(np.float32(1))
    assert program.variables["v"] == 10
    assert program.call(np.float32(1)) == 12


def test_threads_call_one_program(counter: Any) -> None:
    wrong: list[Any] = []

    def work(number: float) -> None:
        for _ in range(30):
            result = float(counter.call(np.float32(number)))
            # What it began with was some sum of what the threads add: a whole number.
            if result - 2 * number < 10 or result % 1:
                wrong.append(result)

    in_threads(3, lambda number: work(2.0**number))
    assert wrong == []


def test_callback_may_call_the_program_itself(loaded: Any) -> None:
    def descend(x: Any) -> Any:
        return np.float32(0) if x <= 0 else np.float32(x + float(program.call(np.float32(x - 1))))

    program = loaded(
        make(with_call("triple", "tensor<f32>")), callbacks={f"{FUNCTIONS}:triple": descend}
    )
    assert program.call(np.float32(4)) == 10


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["manifest.json", "program.mlir", "variables.npz"])
def test_files_of_somebody_else_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"format": 3, "name": "a web page"}')
    before = files_in(tmp_path)
    with pytest.raises(FileExistsError, match=f"{name} would be replaced, and no program") as error:
        make(with_call("triple")).save(tmp_path)
    assert "Save into another directory, or remove it" in str(error.value)
    assert files_in(tmp_path) == before


def test_program_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(with_call("triple")).save(tmp_path)
    before = files_in(tmp_path)
    write = Path.write_bytes

    def full(path: Path, data: Any) -> int:
        if path.name == "manifest.json":
            raise OSError(28, os.strerror(28), str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        make(COUNTER, variables=VARIABLES, assigns=["v"]).save(tmp_path)
    assert files_in(tmp_path) == before
    program = hostcall_mlir.load(tmp_path)
    np.testing.assert_array_equal(program.call(F3), 3 * F3)


def test_program_replaces_one_with_more_files_and_leaves_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    make(COUNTER, variables=VARIABLES, assigns=["v"]).save(tmp_path)
    assert "variables.npz" in files_in(tmp_path)
    made = make(with_call("triple"))
    made.save(tmp_path)
    left = {"manifest.json", "notes.txt", "program.mlir", "program.stablehlo"}
    assert {*files_in(tmp_path)} == left
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert files.read(tmp_path).manifest.inputs == made.manifest.inputs


def test_program_has_a_short_text() -> None:
    assert repr(make(with_call("triple"))) == "<Program predict(x0: float32[3])>"
