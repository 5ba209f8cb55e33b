"""What the log says of functions that are partitioned though nobody has asked for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

from hostcall._callbacks import advice, lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler import refusals, route_selection
from hostcall._compiler.partition.partitioner import PartitionedFunction
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDefLibrary, NodeDef
from hostcall_runtime._words import counted

_log = logging.getLogger("hostcall")
_told: set[str] = set()

_WANTS_SHAPE = (
    "hostcall: %s partitions the compiled function around it, because nothing tells the shape of "
    "result %d when XLA compiles; %s. To keep one program, %s. To say that partitioning is fine: %s"
)
_IS_BOUNDED = (
    "hostcall: %s partitions the compiled function around it: %s. What comes after it is compiled "
    "anew for each size. To keep one program, do without that op, or do its work in the callback. "
    "To say that partitioning is fine: %s"
)
_IS_REFUSED = (
    "hostcall: XLA does not compile %s as a whole: %s. These ops run on the host instead, and the "
    "rest in %s: %s. hostcall.explain shows where; "
    "hostcall.configure(uncompilable='error') makes it an error."
)

# What TensorFlow makes of the name of a function, and we of that.
_NAME = re.compile(
    r"(?:__(?:inference|forward|backward)_)?(?P<name>.+?)(?:_\d+)?(?:__partitioned.*)?"
)

# Of the ops that one line names.
_MANY_OPS = 8


def of_script_ops(library: FunctionDefLibrary) -> None:
    """Logs, once for each place, that a callback partitions functions which nobody asked for."""
    nodes = (node for function in library.function for node in function.node_def)
    for node in (node for node in nodes if node.op in op_kinds.SCRIPT_OPS):
        choice = route_selection.choose(node)
        spec = lookup.entry_of(node)
        if not isinstance(spec, CallbackSpec) or spec.description in _told:
            continue
        if choice.wants_shape:
            _told.add(spec.description)
            _log.warning(_WANTS_SHAPE, *_on_shapes(spec, node))
        elif choice.is_bounded:
            _told.add(spec.description)
            fine = advice.partitioning_is_fine(spec)
            _log.warning(_IS_BOUNDED, spec.description, choice.reason, fine)


def _on_shapes(spec: CallbackSpec, node: NodeDef) -> tuple[Any, ...]:
    """What the log says of a callback whose results have no known shapes."""
    known = route_selection.known_results(spec, node)
    index, said = next(iter(route_selection.unknown_results(spec, known).items()))
    is_known, lines = advice.what_is_known(said), advice.in_one_line(spec, known)
    return spec.description, index, is_known, lines, advice.partitioning_is_fine(spec)


def of_refusal(entry: str, refusal: str, plans: Iterable[PartitionedFunction]) -> None:
    """Logs, once for each function, that XLA refuses it, and what has become of it.

    Args:
      entry: its name.
      refusal: what XLA has said.
      plans: of the functions that it was partitioned into.
    """
    match = _NAME.fullmatch(entry)
    name = match["name"] if match else entry
    line = refusals.line_of(refusal)
    what = f"{name} ({line})" if line else name
    if what in _told:
        return  # a function is traced, and refused, for each shape of its arguments
    _told.add(what)
    plans = list(plans)
    ops = sorted({op for plan in plans for op in plan.must_be_on_host})
    named = ", ".join(ops[:_MANY_OPS]) + (", ..." if len(ops) > _MANY_OPS else "")
    clusters = counted(sum(len(plan.clusters) for plan in plans), "compiled cluster")
    _log.warning(_IS_REFUSED, what, refusals.in_words(refusal), clusters, named)
