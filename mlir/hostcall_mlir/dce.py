"""`hostcall-dce`: drops pure ops that nobody uses, host calls among them.

MLIR's own passes keep every custom call. A host call without `has_side_effect` goes here where
nobody uses its results, together with what was computed for it alone, also as a call of a function
that makes only such calls. Calls with a side effect stay.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.sine %arg0 : tensor<3xf32>
  %1 = stablehlo.custom_call @hostcall(%0) {api_version = 4 : i32, backend_config = {callback = "pkg:pure", dynamic_operands = array<i64>, dynamic_results = array<i64>, narrow_operands = array<i64>, narrow_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  %2 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, narrow_operands = array<i64>, narrow_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %arg0 : tensor<3xf32>
}
```

After `hostcall-dce`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, has_side_effect = true, backend_config = {callback = "pkg:log", dynamic_operands = array<i64>, dynamic_results = array<i64>, narrow_operands = array<i64>, narrow_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %arg0 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir._effects import Effects
from hostcall_mlir._jaxlib_private import address
from hostcall_mlir._pass import Options, Pass


def _run(module: ir.Module, _options: Options) -> None:
    effects = Effects(module)
    for ops in effects.bodies.values():
        kept: set[int] = set()  # what holds an op that stays and has effects
        # Backwards, users come before what they use, and regions before the op that they are of.
        for op in reversed(ops):
            if address(op) in kept or not effects.is_pure(op):
                kept.add(address(op.parent.operation))
            elif effects.is_droppable(op) and not any(_is_used(result) for result in op.results):
                op.erase()


PASS = Pass("hostcall-dce", "drop pure calls whose results nobody uses", _run)


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
