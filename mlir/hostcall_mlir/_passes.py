"""The list of our passes, in the order of `hostcall-opt --help`."""

from hostcall_mlir import check, from_jax, name, number
from hostcall_mlir._pass import Pass

PASSES: dict[str, Pass] = {
    module.PASS.name: module.PASS for module in (check, from_jax, name, number)
}
