"""hostcall_mlir.load, as a whole and partition: both do what the program says."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib.mlir import ir

import hostcall_mlir
import hostcall_runtime
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program import files, manifests
from hostcall_mlir.program.files import Program
from tests.support import mlir_programs
from tests.support.exported import functions
from tests.support.exported.cases import CASES, of_text
from tests.support.exported.programs import F3, call, load, make, without_tokens
from tests.support.threads import PATIENCE, Alone


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_program_does_what_it_says(name: str, partitioned: bool, tmp_path: Path) -> None:
    case = CASES[name]
    program = load(case.make(), tmp_path, partitioned=partitioned)
    for _ in range(2):
        functions.LOG.clear()
        result = program.call(*case.args)
        jax.tree.map(assert_same, result, case.expected)
        assert [*case.log] == functions.LOG


def assert_same(found: Any, expected: Any) -> None:
    assert isinstance(found, jax.Array)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


# Those whose elements take bytes of their own.
ELEMENTS = {n: e for n, e in custom_calls.ELEMENTS.items() if e not in custom_calls.WIDE}


def test_every_dtype_goes_in_and_out(tmp_path: Path) -> None:
    of_each = [f"tensor<2x{element}>" for element in ELEMENTS.values()]
    arguments = ", ".join(f"%a{i}: {type_}" for i, type_ in enumerate(of_each))
    lines = [
        f"%r{i} = {call('same', f'({type_}) -> {type_}', f'%a{i}')}"
        for i, type_ in enumerate(of_each)
    ]
    types, names = ", ".join(of_each), ", ".join(f"%r{i}" for i in range(len(of_each)))
    text = f"func.func public @main({arguments}) -> ({types}) {{\n" + "\n".join(lines)
    made = make(f"{text}\nreturn {names} : {types}\n}}")
    seen: list[Any] = []

    def same(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    values = [np.array([1, 2]).astype(manifests.dtype_of(name)) for name in ELEMENTS]
    values[[*ELEMENTS].index("int64")][0] = 1 << 40
    values[[*ELEMENTS].index("float64")][0] = 1 / 3
    for partitioned in False, True:
        seen.clear()
        given_ = {"tests.support.exported.functions:same": same}
        results = load(made, tmp_path, partitioned=partitioned, callbacks=given_).call(*values)
        assert {*seen} == {value.dtype for value in values}
        for result, value in zip(results, values, strict=True):
            np.testing.assert_array_equal(np.asarray(result), value, strict=True)


def test_concurrent_calls_overlap(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def meet(x: Any) -> Any:
        together.wait(PATIENCE)
        return x

    type_ = "tensor<3xf32>"
    calls = [f"%{i} = {call('same', f'({type_}) -> {type_}', '%x')}" for i in range(3)]
    added = f"%3 = stablehlo.add %0, %1 : {type_}\n%4 = stablehlo.add %2, %3 : {type_}"
    lines = "\n".join([*calls, added, f"return %4 : {type_}"])
    text = f"func.func public @main(%x: {type_}) -> {type_} {{\n{lines}\n}}"
    made = make(text, of_callbacks={"concurrent": True})
    same = "tests.support.exported.functions:same"
    program = load(made, tmp_path, callbacks={same: meet})
    np.testing.assert_array_equal(program.call(F3), 3 * F3)
    together.abort()
    with pytest.raises(jax.errors.JaxRuntimeError):
        program.call(F3)
    assert hostcall_runtime.prepared().count_early_calls() == 0
    assert "hostcall_start" not in program.text
    alone = Alone()
    load(make(text), tmp_path / "others", callbacks={same: alone}).call(F3)
    assert (alone.overlaps, alone.calls) == (0, 3)


class Arithmetic:
    """The host calls of `mlir_programs.evaluate` as Python functions."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.token = np.float32(1)
        self.functions: dict[str, Any] = {f"plain_{n}": self._plain(n) for n in numbers}
        self.functions |= {f"ordered_{n}": self._ordered(n) for n in numbers}

    def _plain(self, number: int) -> Callable[[Any], Any]:
        return lambda x: np.float32(np.float32(x * np.float32(0.5)) + np.float32(number))

    def _ordered(self, number: int) -> Callable[[Any], Any]:
        plain = self._plain(number)

        def ordered(x: Any) -> Any:
            result = np.float32(plain(x) + self.token)
            self.token = np.float32(result + plain(self.token))
            return result

        return ordered


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 10), st.booleans())
def test_random_program_computes_the_same(random: Random, size: int, partitioned: bool) -> None:
    text = mlir_programs.Program(random, size).text
    expected = mlir_programs.evaluate(text, 2.0, -3.0)
    named = with_names(text)
    arithmetic = Arithmetic(range(100))
    called = {callback.name for callback in named.manifest.callbacks}
    callbacks = {name: f for name, f in arithmetic.functions.items() if name in called}
    program = hostcall_mlir.LoadedProgram(named, callbacks, False, partitioned, None)
    one, other = program.call(np.float32(2), np.float32(-3))
    found = [float(one), float(other), float(arithmetic.token)]
    assert found == pytest.approx(expected, rel=1e-6, abs=0)


def with_names(text: str) -> Program:
    """The program with names in the place of numbers, and a @main without tokens."""
    with private.new_context():
        module = ir.Module.parse(text)
        for op in custom_calls.host_calls(module):
            kind = (
                "ordered" if any(map(private.is_token, custom_calls.result_types(op))) else "plain"
            )
            custom_calls.set_callback(op, f"{kind}_{custom_calls.callback_of(op)}")
        made = make(without_tokens(module))
    files.trust(made.artifact)
    return made


def test_parts_that_are_the_same_are_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(code: bytes, device: Any, calls: bool) -> Any:
        compiled.append(code)
        return compile_for(code, device, calls)

    compiled: list[bytes] = []
    compile_for = private.compile_for
    monkeypatch.setattr(private, "compile_for", count)
    lines, last = [], "%x"
    for i in range(10):
        lines.append(f"%a{i} = stablehlo.add {last}, {last} : tensor<3xf32>")
        lines.append(f"%b{i} = {call('triple', '(tensor<3xf32>) -> tensor<3xf32>', f'%a{i}')}")
        last = f"%b{i}"
    made = of_text("\n".join([*lines, f"return {last} : tensor<3xf32>"]))()
    np.testing.assert_array_equal(load(made, tmp_path, partitioned=True).call(F3), F3 * 6**10)
    # One cluster, and ten calls from different lines.
    assert len(compiled) == len({*compiled}) == 11


def test_host_call_where_nothing_can_be_partitioned_is_an_error_at_its_place(
    tmp_path: Path,
) -> None:
    text = f"""
func.func public @main(%x: tensor<3xf32>) -> tensor<f32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce"(%x, %zero) ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = {call("plus", "(tensor<f32>, tensor<f32>) -> tensor<f32>", "%a, %b")}
    stablehlo.return %c : tensor<f32>
  }}) {{dimensions = array<i64: 0>}} : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}}"""
    with pytest.raises(hostcall_mlir.ProgramError, match="the program cannot be partitioned") as e:
        load(make(text), tmp_path, partitioned=True)
    assert "a host call inside of 'stablehlo.reduce'" in str(e.value)
