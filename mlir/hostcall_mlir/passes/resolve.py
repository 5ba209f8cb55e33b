"""`hostcall-resolve`: callback ids of one process in the place of qualified names.

The inverse of `hostcall-name`, with the same options. A name that stands for several ids becomes the
lowest of them. Calls that have an id keep it, and a name without an id is an error.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "numpy:sin", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
```

After `hostcall-resolve{names=3=numpy:sin}`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import Failure, report
from hostcall_mlir.passes.base import Options, Pass, read_ids, read_map


def _run(module: ir.Module, options: Options) -> None:
    names = read_ids(read_map(options, "names", PASS.name), PASS.name)
    ids = {names[callback_id]: callback_id for callback_id in sorted(names, reverse=True)}
    ok = True
    for op in custom_calls.host_calls(module):
        callback = custom_calls.callback_of(op)
        if not isinstance(callback, str):
            continue
        if callback in ids:
            custom_calls.set_callback(op, ids[callback])
            continue
        ok = False
        report(op, f"{PASS.name}: no callback id is given for '{callback}'; add it to 'names'")
    if not ok:
        raise Failure


PASS = Pass(
    "hostcall-resolve",
    "write callback ids in the place of qualified names",
    _run,
    {
        "names": "3=pkg.mod:fn,4=pkg.mod:other",
        "file": 'a JSON object, {"3": "pkg.mod:fn"}',
    },
)
