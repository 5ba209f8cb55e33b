"""hostcall_mlir.passes.tokens: functions that take tokens alone."""

import pytest
from jaxlib.mlir import ir

from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.passes import tokens
from tests.support.exported.programs import TOKEN, call

LOG = call("log", f"(tensor<f32>, {TOKEN}) -> {TOKEN}", "%x, %t")
PROGRAM = f"""
func.func public @main(%p: tensor<i1>) {{
  %t = stablehlo.create_token : {TOKEN}
  %0 = "stablehlo.if"(%p) ({{
    %1 = func.call @alone(%t) : ({TOKEN}) -> {TOKEN}
    stablehlo.return %1 : {TOKEN}
  }}, {{
    stablehlo.return %t : {TOKEN}
  }}) : (tensor<i1>) -> {TOKEN}
  %x = stablehlo.constant dense<1.0> : tensor<f32>
  %2 = func.call @beside(%x, %0) : (tensor<f32>, {TOKEN}) -> {TOKEN}
  %3 = func.call @two(%2, %t) : ({TOKEN}, {TOKEN}) -> {TOKEN}
  return
}}
func.func private @alone(%t: {TOKEN} {{jax.token = true}}) -> ({TOKEN} {{jax.token = true}}) {{
  %x = stablehlo.constant dense<2.0> : tensor<f32>
  %0 = {LOG}
  return %0 : {TOKEN}
}}
func.func private @beside(%x: tensor<f32>, %t: {TOKEN}) -> {TOKEN} {{
  %0 = {LOG}
  return %0 : {TOKEN}
}}
func.func private @two(%t: {TOKEN}, %u: {TOKEN}) -> {TOKEN} {{
  %0 = func.call @alone(%t) : ({TOKEN}) -> {TOKEN}
  return %0 : {TOKEN}
}}
func.func public @entry(%t: {TOKEN}) -> {TOKEN} {{
  return %t : {TOKEN}
}}
"""


def _parsed() -> ir.Module:
    return ir.Module.parse(PROGRAM, private.new_context())


@pytest.fixture
def _fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "FAILS_FOR_TOKENS_ALONE", True)


@pytest.mark.usefixtures("_fails")
def test_private_functions_get_a_number_beside_their_tokens() -> None:
    module = _parsed()
    before = str(module)
    copy = tokens.with_numbers(module)
    assert copy is not None
    copy.operation.verify()
    assert str(module) == before
    text = str(copy)
    alone = f"func.func private @alone(%arg0: {TOKEN} {{jax.token = true}}, %arg1: tensor<i32>)"
    assert alone in text
    assert f"func.func private @two(%arg0: {TOKEN}, %arg1: {TOKEN}, %arg2: tensor<i32>)" in text
    assert f"func.func private @beside(%arg0: tensor<f32>, %arg1: {TOKEN})" in text
    assert f"func.func public @entry(%arg0: {TOKEN})" in text
    assert text.count(f"({TOKEN}, tensor<i32>) -> {TOKEN}") == 2


@pytest.mark.usefixtures("_fails")
def test_a_module_without_such_functions_is_not_copied() -> None:
    copy = tokens.with_numbers(_parsed())
    assert copy is not None
    assert tokens.with_numbers(copy) is None


def test_nothing_is_done_where_xla_can_compile_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "FAILS_FOR_TOKENS_ALONE", False)
    assert tokens.with_numbers(_parsed()) is None
