"""`hostcall-name`: qualified names in the place of the callback ids of one process.

A callback id means something in the process whose registry gave it. A qualified name,
`module:qualname`, can be looked up in any process. `names`, or the JSON object in `file`, maps ids to
names. Calls that have a name keep it, and an id without a name is an error.

Before:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = 3 : i64, dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
```

After `hostcall-name{names=3=numpy:sin}`:

```mlir
func.func @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.custom_call @hostcall(%arg0) {api_version = 4 : i32, backend_config = {callback = "numpy:sin", dynamic_operands = array<i64>, dynamic_results = array<i64>, sub_byte_operands = array<i64>, sub_byte_results = array<i64>}} : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
```
"""  # noqa: E501  # IR as it is printed

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import Failure, PassError, report
from hostcall_mlir.passes.base import Options, Pass, read_ids, read_map


def _run(module: ir.Module, options: Options) -> None:
    names = read_ids(read_map(options, "names", PASS.name), PASS.name)
    for name in names.values():
        if not custom_calls.is_name(name):
            raise PassError(
                f"{PASS.name}: '{name}' is no name: module:qualname is one, or a word, with or "
                "without #2 behind it"
            )
    ok = True
    for op in custom_calls.host_calls(module):
        callback = custom_calls.callback_of(op)
        if isinstance(callback, str):
            continue
        if callback in names:
            custom_calls.set_callback(op, names[callback])
            continue
        ok = False
        report(op, f"{PASS.name}: no name is given for callback {callback}; add it to 'names'")
    if not ok:
        raise Failure


PASS = Pass(
    "hostcall-name",
    "write qualified names in the place of callback ids",
    _run,
    {
        "names": "3=pkg.mod:fn,4=pkg.mod:other",
        "file": 'a JSON object, {"3": "pkg.mod:fn"}',
    },
)
