"""Exported programs that somebody has made up: errors, and nothing that they could do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.exported.damaged import LOOP, PROGRAM, artifact_of, error_of, save, sign
from tests.support.exported.programs import TOKEN, call, load, make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (
            'stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {backend_config = "", '
            "mhlo.backend_config = {index = 0 : ui64}} : (tensor<f32>) -> tensor<f32>",
            "'xla_ffi_python_cpu_callback', which works only in the process that made it",
        ),
        (
            "stablehlo.custom_call @xla_python_cpu_callback(%x) : (tensor<f32>) -> tensor<f32>",
            "'xla_python_cpu_callback', which works only in the process that made it",
        ),
        (
            "stablehlo.custom_call @hostcall_native(%x) {api_version = 4 : i32, "
            "backend_config = {code = 1 : i64}} : (tensor<f32>) -> tensor<f32>",
            "'hostcall_native', which works only in the process that made it",
        ),
    ],
)
def test_call_of_what_another_process_had_is_refused(op: str, text: str, tmp_path: Path) -> None:
    body = f"%0 = {op}\n  return %0 : tensor<f32>"
    made = make(f"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{ {body} }}")
    made.save(tmp_path)
    assert text in error_of(tmp_path)


def test_program_that_waits_for_somebody_is_refused(tmp_path: Path) -> None:
    text = f"""
func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
  %t = stablehlo.create_token : {TOKEN}
  %0:2 = "stablehlo.infeed"(%t) {{infeed_config = ""}} : ({TOKEN}) -> (tensor<f32>, {TOKEN})
  return %0#0 : tensor<f32>
}}
"""
    make(text).save(tmp_path)
    assert "an op 'stablehlo.infeed', which would wait for ever" in error_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'stablehlo.custom_call @hostcall(%x) {backend_config = ""} : '
            "(tensor<f32>) -> tensor<f32>",
            "hostcall-check: api_version has to be 4",
        ),
        (
            call("triple", "(tensor<f32>) -> tensor<f32>", "%x", sub_byte_operands="0, 21"),
            "sub_byte_operands is about operand 0, which has to be of i8 or ui8",
        ),
    ],
)
def test_host_call_of_another_form_is_refused(text: str, problem: str, folder: Path) -> None:
    body = f"%0 = {text}\n  return %0 : tensor<f32>"
    other = f"func.func public @main(%x: tensor<f32>) -> tensor<f32> {{ {body} }}"
    (folder / "program.stablehlo").write_bytes(artifact_of(other))
    sign(folder, "program.stablehlo")
    assert problem in error_of(folder)


@pytest.mark.parametrize(
    "text",
    [
        "func.func public @other() { return }",
        "func.func private @main(tensor<f32>) -> tensor<f32>",
    ],
)
def test_program_without_a_main_is_refused(text: str, folder: Path) -> None:
    (folder / "program.stablehlo").write_bytes(artifact_of(text))
    sign(folder, "program.stablehlo")
    assert "the program has no function @main" in error_of(folder)


@pytest.mark.parametrize(
    "attribute", ["tf.aliasing_output = 0 : i32", "jax.buffer_donor = true", "mhlo.x = 1"]
)
def test_program_cannot_reuse_the_memory_of_its_callers_arrays(
    attribute: str, tmp_path: Path
) -> None:

    text = f"""
module attributes {{mhlo.num_replicas = 2 : i32}} {{
  func.func public @main(%x: tensor<3xf32> {{{attribute}}}) -> tensor<3xf32> {{
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }}
}}
"""
    x = jax.numpy.ones(3)
    loaded = load(make(text), tmp_path)
    for _ in range(2):
        np.testing.assert_array_equal(loaded.call(x), [2, 2, 2])
    np.testing.assert_array_equal(x, [1, 1, 1])


def test_number_in_the_place_of_a_name_is_refused(folder: Path) -> None:
    text = LOOP.replace('"tests.support.exported.functions:triple"', "5 : i64")
    (folder / "program.stablehlo").write_bytes(artifact_of(text))
    sign(folder, "program.stablehlo")
    assert "a host call has the callback id 5 in the place of a name" in error_of(folder)


def test_every_error_leaves_the_next_load_sound(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    error_of(folder)
    made: Callable[[], Any] = lambda: load(PROGRAM, tmp_path / "sound")  # noqa: E731
    np.testing.assert_array_equal(made().call(np.ones(3, np.float32))[0], [3, 3, 3])
