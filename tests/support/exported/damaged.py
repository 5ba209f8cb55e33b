"""A program to damage, and what to do it with."""

import json
from pathlib import Path

import numpy as np
import pytest
from jaxlib.mlir import ir

import hostcall_mlir
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.program import files
from tests.support.exported.programs import TOKEN, call, make

LOOP = f"""
func.func @main(%a: tensor<3xf32>, %b: tensor<i64>) -> (tensor<3xf32>, tensor<i64>) {{
  %t = stablehlo.create_token : {TOKEN}
  %z = stablehlo.constant dense<0> : tensor<i64>
  %0:2 = {call("triple", f"(tensor<3xf32>, {TOKEN}) -> (tensor<3xf32>, {TOKEN})", "%a, %t")}
  %w:2 = stablehlo.while(%i = %b, %x = %0#0) : tensor<i64>, tensor<3xf32>
  cond {{
    %p = stablehlo.compare LT, %i, %z : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %y = func.call @f(%x) : (tensor<3xf32>) -> tensor<3xf32>
    stablehlo.return %i, %y : tensor<i64>, tensor<3xf32>
  }}
  return %w#1, %w#0 : tensor<3xf32>, tensor<i64>
}}
func.func private @f(%x: tensor<3xf32>) -> tensor<3xf32> {{
  %k = stablehlo.sine %x : tensor<3xf32>
  return %k : tensor<3xf32>
}}
"""
PROGRAM = make(LOOP, variables={"v": np.array(3)})


def save(folder: Path) -> Path:
    """The program's directory."""
    PROGRAM.save(folder / "program")
    files.trust(PROGRAM.artifact)
    return folder / "program"


def error_of(folder: Path) -> str:
    with pytest.raises(hostcall_mlir.ProgramError) as raised:
        hostcall_mlir.load(folder)
    assert str(raised.value).startswith(f"{folder}: ")
    return str(raised.value)


def sign(folder: Path, name: str) -> None:
    """Has the manifest have the hash of a file as it is."""
    fields = json.loads((folder / "manifest.json").read_text())
    entry = fields["program" if name.endswith("stablehlo") else "variables"]
    entry["sha256"] = files._sha256((folder / name).read_bytes())
    (folder / "manifest.json").write_text(json.dumps(fields))


def artifact_of(text: str) -> bytes:
    with private.new_context():
        return private.serialize_artifact(ir.Module.parse(text), "1.9.0")
