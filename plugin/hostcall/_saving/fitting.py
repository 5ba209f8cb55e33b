"""Whether the record in a token is for the op that has the token."""

from __future__ import annotations

from typing import Any

from hostcall._saving.errors import SavedFunctionError
from hostcall._saving.tokens import Record
from hostcall._tf import op_kinds


def check(record: Record, node: Any) -> None:
    """Checks that a script op may call what its token says.

    Raises:
      SavedFunctionError: when the graph was altered: an op of tensors has the function of one of
        arrays, say, which would compute something else with them.
    """
    of_tensors = node.op == op_kinds.EAGER_PY_FUNC
    if (record.kind != "numpy") != of_tensors:
        takes, has = ("tensors", "arrays") if of_tensors else ("arrays", "tensors")
        raise SavedFunctionError(
            f"hostcall: the graph was damaged or altered: op '{node.name}' ({node.op}) calls a "
            f"function of {takes}, and its token names one of {has}, {record.users.label}"
        )
    if isinstance(record.inputs, int) and record.inputs != len(node.attr["Tin"].list.type):
        raise SavedFunctionError(
            f"hostcall: the graph was damaged or altered: op '{node.name}' ({node.op}) has "
            f"{len(node.attr['Tin'].list.type)} inputs, and its token names a function of "
            f"{record.inputs}, {record.users.label}"
        )
