"""`hostcall-cse-pure` and `hostcall-dce`: one pure call for equal ones, none for unused ones.

The later of two calls goes where the earlier one has run for sure: in the same block, or in a
region of an op behind it. MLIR's `cse` shares what is between the calls and leaves all custom calls
alone, so `cse,hostcall-cse-pure,cse,hostcall-cse-pure` shares more. Calls with a side effect stay.

MLIR's own passes keep every custom call. A host call without `has_side_effect` goes here where
nobody uses its results, together with what was computed for it alone, also as a call of a function
that makes only such calls. Calls with a side effect stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.jaxlib_names import attributes_of
from hostcall_mlir.ir.traversal import drop_unused
from hostcall_mlir.passes.base import Options, Pass


def _merge_equal(module: ir.Module, _options: Options) -> None:
    calls: dict[Hashable, ir.Operation] = {}
    for op in custom_calls.host_calls(module):
        if custom_calls.has_side_effect(op):
            continue
        call = _identity(op)
        same = next((calls[b, call] for b in _blocks_around(op) if (b, call) in calls), None)
        if same is None:
            calls[op.block, call] = op
            continue
        for old, new in zip(op.results, same.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


CSE_PURE = Pass(
    "hostcall-cse-pure", "share pure calls with the same function and operands", _merge_equal
)


def _identity(op: ir.Operation) -> Hashable:
    attributes = tuple(attributes_of(op).items())
    return attributes, tuple(op.operands), tuple(result.type for result in op.results)


def _blocks_around(op: ir.Operation) -> Iterator[ir.Block]:
    """Return the block of the op, that of its parent op, and so on up to the function."""
    yield op.block
    while op.parent is not None and op.parent.operation.name != "func.func":
        op = op.parent.operation
        yield op.block


def _drop_unused(module: ir.Module, _options: Options) -> None:
    drop_unused(module)


DCE = Pass("hostcall-dce", "drop pure calls whose results nobody uses", _drop_unused)
