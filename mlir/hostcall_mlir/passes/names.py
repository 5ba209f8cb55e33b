"""`hostcall-name` and `hostcall-resolve`: qualified names in place of callback ids, and back.

A callback id is valid only in the process whose registry gave it. A qualified name,
`module:qualname`, can be looked up in any process. For both passes the option `names`, or the JSON
object in `file`, maps ids to names.

`hostcall-name` writes names. Calls that have a name keep it, and an id without a name is an error.
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

`hostcall-resolve` is the inverse. A name that stands for several ids becomes the lowest of them.
Calls that have an id keep it, and a name without an id is an error.

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
"""  # noqa: E501

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import Failure, PassError, report
from hostcall_mlir.passes.base import Options, Pass, read_ids, read_map


def _name_calls(module: ir.Module, options: Options) -> None:
    names = read_ids(read_map(options, "names", NAME.name), NAME.name)
    for name in names.values():
        if not custom_calls.is_name(name):
            raise PassError(
                f"{NAME.name}: '{name}' is no name: module:qualname is one, or a word, with or "
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
        report(op, f"{NAME.name}: no name is given for callback {callback}; add it to 'names'")
    if not ok:
        raise Failure


NAME = Pass(
    "hostcall-name",
    "write qualified names in the place of callback ids",
    _name_calls,
    {
        "names": "3=pkg.mod:fn,4=pkg.mod:other",
        "file": 'a JSON object, {"3": "pkg.mod:fn"}',
    },
)


def _resolve_calls(module: ir.Module, options: Options) -> None:
    names = read_ids(read_map(options, "names", RESOLVE.name), RESOLVE.name)
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
        report(op, f"{RESOLVE.name}: no callback id is given for '{callback}'; add it to 'names'")
    if not ok:
        raise Failure


RESOLVE = Pass(
    "hostcall-resolve",
    "write callback ids in the place of qualified names",
    _resolve_calls,
    {
        "names": "3=pkg.mod:fn,4=pkg.mod:other",
        "file": 'a JSON object, {"3": "pkg.mod:fn"}',
    },
)
