"""The list of our passes, in the order of `hostcall-opt --help`."""

from hostcall_mlir.passes import check, cse_pure, dce, from_jax, name, overlap, partition, resolve
from hostcall_mlir.passes.base import Pass

PASSES: dict[str, Pass] = {
    module.PASS.name: module.PASS
    for module in (from_jax, name, resolve, cse_pure, dce, partition, overlap, check)
}
