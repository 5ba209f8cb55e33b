"""Portable artifacts as passes get them: in bytes, and as StableHLO's own reader leaves them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import hostcall_mlir
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program import portable
from tests.support.exported.programs import TOKEN, artifact_of, call, make

CALLS = f"""
func.func public @main(%x: tensor<3x4xi8>, %n: tensor<i32>) -> tensor<2xi8> {{
  %t = stablehlo.create_token : {TOKEN}
  %0:3 = {
    call(
        "triple",
        f"(tensor<3x4xi8>, tensor<i32>, {TOKEN}) -> (tensor<2xi8>, tensor<i32>, {TOKEN})",
        "%x, %n, %t",
        dynamic_operands="0, 1",
        dynamic_results="0, 0",
        sub_byte_operands="0, 21",
        sub_byte_results="0, 21",
    )
}
  return %0#0 : tensor<2xi8>
}}
"""
WRONG = CALLS.replace("0, 21", "0, 22, 1, 21")
CHECK = "builtin.module(hostcall-check)"


def forms(text: str) -> dict[str, Any]:
    """What others make of a program: each has to be as good as its text."""
    artifact = artifact_of(text)
    context = private.new_context()
    read = stablehlo.deserialize_portable_artifact(context, artifact)
    return {
        "the artifact": artifact,
        "its ops as text": str(ir.Module.parse(artifact, context)),
        "what StableHLO reads": str(read),
        "bytecode of that": private.bytecode_of(read),
    }


@pytest.mark.parametrize("form", forms(CALLS))
def test_calls_are_checked_in_each_form(form: str) -> None:
    text = hostcall_mlir.transform(forms(CALLS)[form], CHECK)
    assert "stablehlo.custom_call @hostcall(" in text
    assert "dynamic_operands = array<i64: 0, 1>" in text
    assert hostcall_mlir.transform(text, CHECK) == text
    with pytest.raises(hostcall_mlir.PassError, match="hostcall-check: sub_byte_operands names"):
        hostcall_mlir.transform(forms(WRONG)[form], CHECK)


@pytest.mark.parametrize("form", forms(CALLS))
def test_passes_do_the_same_to_each_form(form: str) -> None:
    passes = "hostcall-resolve{names=5=tests.support.exported.functions:triple},hostcall-partition"
    passes += ",strip-debuginfo"
    wanted = hostcall_mlir.transform(CALLS, passes)
    assert hostcall_mlir.transform(forms(CALLS)[form], passes) == wanted


def test_calls_of_jax_are_read_in_its_form_too() -> None:
    config = "callback = 5 : i64, dynamic_operands = dense<> : tensor<0xi64>, "
    config += "dynamic_results = dense<> : tensor<0xi64>, sub_byte_operands = "
    config += "dense<[0, 21]> : tensor<2xi64>, sub_byte_results = dense<> : tensor<0xi64>"
    attributes = f'backend_config = "", mhlo.backend_config = {{{config}}}'
    text = f"""
func.func @main(%x: tensor<3xi8>) -> tensor<3xi8> {{
  %0 = stablehlo.custom_call @hostcall(%x) {{{attributes}}}
    : (tensor<3xi8>) -> tensor<3xi8>
  return %0 : tensor<3xi8>
}}
"""
    read = hostcall_mlir.transform(text, "hostcall-from-jax,hostcall-check")
    assert "sub_byte_operands = array<i64: 0, 21>" in read


@pytest.mark.parametrize("kind", ["dense<0.0> : tensor<2xf32>", "dense<0> : tensor<1x2xi64>"])
def test_tensors_that_no_reader_leaves_are_refused(kind: str) -> None:
    text = CALLS.replace("array<i64: 0, 21>", kind, 1)
    with pytest.raises(hostcall_mlir.PassError, match="has to be an array<i64> of pairs, not"):
        hostcall_mlir.transform(text, CHECK)


def test_calls_that_a_pass_hides_are_not_taken_for_checked() -> None:
    passes = "stablehlo-legalize-to-vhlo,hostcall-check"
    text = CALLS[: CALLS.index("{\n")] + "{ %c = stablehlo.constant dense<0> : tensor<2xi8>\n"
    text += "  return %c : tensor<2xi8>\n}"
    with pytest.raises(hostcall_mlir.PassError, match="the ops are those of a portable artifact"):
        hostcall_mlir.transform(text, passes)


def test_artifact_of_another_version_is_an_error() -> None:
    text = forms(CALLS)["its ops as text"]
    assert "vhlo.return_v1" in text
    with pytest.raises(hostcall_mlir.PassError, match=r"^x\.mlir:\d+:\d+: error: "):
        hostcall_mlir.transform(text.replace("return_v1", "return_v9"), CHECK, source="x.mlir")


def test_command_reads_an_artifact(tmp_path: Path) -> None:
    make(CALLS).save(tmp_path)
    command = [sys.executable, "-m", "hostcall_mlir.opt", "--pass-pipeline=hostcall-check"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.stablehlo")], capture_output=True, text=True
    )
    assert "array<i64: 0, 21>" in done.stdout, done.stderr
    assert done.returncode == 0


DIVISIONS = """\
func.func @main(%x: tensor<2xi32>, %f: tensor<f32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<f32>) {
  %mixed = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
  %two = stablehlo.constant dense<2> : tensor<2xi32>
  %less = stablehlo.subtract %two, %two : tensor<2xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.remainder %x, %mixed : tensor<2xi32>
  %1 = stablehlo.divide %0, %less : tensor<2xi32>
  %2 = stablehlo.divide %1, %two : tensor<2xi32>
  %3 = stablehlo.divide %2, %x : tensor<2xi32>
  %4 = stablehlo.divide %f, %zero : tensor<f32>
  return %2, %3, %4 : tensor<2xi32>, tensor<2xi32>, tensor<f32>
}
"""


def test_tensorflow_gets_no_integers_to_divide_by_zero_when_it_reads_a_program() -> None:
    module = portable.parse(DIVISIONS)
    portable.convert(module, {}, stablehlo.get_minimum_version())
    lines = str(module).splitlines()
    hidden = [line for line in lines if "optimization_barrier" in line]
    assert [line.split("barrier ")[1] for line in hidden] == [
        "%c : tensor<2xi32>",
        "%0 : tensor<2xi32>",
    ]
    divided = [line.split("%")[-1] for line in lines if "remainder" in line or "divide" in line]
    assert [line.split()[0] for line in divided][2:] == ["c_0", "arg0", "cst"]
