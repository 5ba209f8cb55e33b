"""What to write so that an op on the host becomes part of one program, or why nothing helps."""

from __future__ import annotations

from collections.abc import Sequence

from hostcall._callbacks import advice, requested_routes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler import route_selection
from hostcall._tf import op_kinds
from hostcall._tf.types import NodeDef

_ASKED_FOR = "take route='partition' away, where hostcall.configure, scope or declare says it"
_BY_CALLER = "nothing here: it is on the host because of what calls it"
_BY_OTHERS = "nothing here: one program calls it where nothing else is on the host"
_NO_STRINGS = "nothing helps: XLA has no strings or variants. Pass numbers, such as indices"
_GONE = "nothing can be said: this process does not have the Python function"
_PRINT = "hostcall.callback(print, result=[])(x)    # in the place of tf.print(x)"
_CHECK = "leave it out where the program can do without: XLA has no {op}"
_DATA = "nothing, where it is data. Otherwise give it as a Python number, or compute it from shapes"
_NO_KERNEL = (
    "nothing helps: XLA cannot compile {op}. Do it before or after the compiled function, or in a "
    "callback with a declared result"
)


def of_script_op(node: NodeDef, spec: CallbackSpec) -> str:
    """The line for a script op on the host.

    Args:
      node: its NodeDef.
      spec: what the process knows of its function, or None.
    """
    if node.op not in op_kinds.SCRIPT_OPS:
        return _BY_CALLER
    choice = route_selection.choose(node)
    if requested_routes.asked(node) == requested_routes.PARTITION:
        return _ASKED_FOR
    if choice.route != requested_routes.PARTITION:
        return _BY_CALLER
    if choice.is_bounded:
        return "let the function return an array of a fixed size, padded, and declare that"
    if not isinstance(spec, CallbackSpec):
        return _GONE
    if choice.fits_region:
        return _BY_OTHERS
    return advice.declaration_as_seen(spec, route_selection.known_results(spec, node))


def of_host_op(node: NodeDef, reason: str, calls: Sequence[str]) -> str:
    """The same for an op that is no script op.

    Args:
      node: its NodeDef.
      reason: why it is on the host.
      calls: the functions in it that are explained.
    """
    if calls:
        return ""  # what is in it has its own line
    if node.op in ("PrintV2", "StringFormat"):
        return _PRINT
    if reason.startswith("XLA would drop"):
        return _CHECK.format(op=node.op)
    if "depends on data" in reason:
        return _DATA
    if "string" in reason:
        return _NO_STRINGS
    return _NO_KERNEL.format(op=node.op) if "no XLA kernel" in reason else ""
