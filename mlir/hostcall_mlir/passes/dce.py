"""`hostcall-dce`: drops pure ops that nobody uses, host calls among them.

MLIR's own passes keep every custom call. A host call without `has_side_effect` goes here where
nobody uses its results, together with what was computed for it alone, also as a call of a function
that makes only such calls. Calls with a side effect stay.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %arg0 : tensor<3xf32>
}
```

After `hostcall-dce`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %arg0 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir.traversal import drop_unused
from hostcall_mlir.passes.base import Options, Pass


def _run(module: ir.Module, _options: Options) -> None:
    drop_unused(module)


PASS = Pass("hostcall-dce", "drop pure calls whose results nobody uses", _run)
