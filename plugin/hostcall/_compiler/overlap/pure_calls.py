"""Calls of functions that are declared pure: what orders them is taken away.

Their ops are stateful, so TensorFlow lets each wait for the one before it.
"""

from __future__ import annotations

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._tf import attributes, op_kinds
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef


def free(library: FunctionDefLibrary) -> None:
    """Lets the calls of pure functions run in any order.

    Args:
      library: functions, changed in place.
    """
    for function in library.function:
        stateful = defs.nodes_of(function, op_kinds.STATEFUL_SCRIPT_OPS)
        pure = {node.name for node in stateful if _is_pure(node)}
        if pure:
            _free(function, pure)


def _is_pure(node: NodeDef) -> bool:
    entry = lookup.unchecked_entry_of(node)
    return isinstance(entry, CallbackSpec) and entry.declaration.pure


def _free(function: FunctionDef, pure: set[str]) -> None:
    controls: dict[str, list[str]] = {}  # of the pure ones, whom they have to wait for after all
    for node in defs.program_order(function):
        if node.name not in pure:
            continue
        node.attr[attributes.UNORDERED].b = True
        values = [value for value in node.input if not value.startswith("^")]
        waits_for = [
            waited
            for control in node.input[len(values) :]
            for waited in controls.get(defs.source(control), [control])
        ]
        controls[node.name] = list(dict.fromkeys(waits_for))
        node.input[:] = [*values, *controls[node.name]]
