"""The ops that XLA may get wrong, by their kinds: functions without any need no second look."""

from __future__ import annotations

from hostcall._compiler.bounded import compile_time_checks, sources
from hostcall._tf import op_kinds

KINDS = frozenset(
    sources.ALWAYS | sources.BY_OPERANDS.keys() | op_kinds.BRANCH_OPS | compile_time_checks.LIST_OPS.keys()
)
