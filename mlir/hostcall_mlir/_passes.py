"""The list of our passes, in the order of `hostcall-opt --help`."""

from hostcall_mlir import check, cse_pure, dce, from_jax, name, number, split
from hostcall_mlir._pass import Pass

PASSES: dict[str, Pass] = {
    module.PASS.name: module.PASS
    for module in (from_jax, name, number, cse_pure, dce, split, check)
}
