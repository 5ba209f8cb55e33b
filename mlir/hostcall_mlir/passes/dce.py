"""`hostcall-dce`: drops pure ops that nobody uses, host calls among them.

MLIR's own passes keep every custom call. A host call without `has_side_effect` goes here where
nobody uses its results, together with what was computed for it alone, also as a call of a function
that makes only such calls. Calls with a side effect stay.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from hostcall_mlir.ir.traversal import drop_unused
from hostcall_mlir.passes.base import Options, Pass


def _run(module: ir.Module, _options: Options) -> None:
    drop_unused(module)


PASS = Pass("hostcall-dce", "drop pure calls whose results nobody uses", _run)
