"""Warnings in the log about functions that hostcall changes without a request from the user."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hostcall._compiler import refusals, route_selection
from hostcall._compiler.analyses import node_places
from hostcall._compiler.clusters.partitioner import SUFFIX, PartitionedFunction
from hostcall._ops import advice, lookup, settings
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf.graph import function_defs, function_names, op_kinds
from hostcall._tf.types import FunctionDef, FunctionDefLibrary
from hostcall_runtime._errors import counted

_log = logging.getLogger("hostcall")
_told: set[str] = set()

_WANTS_SHAPE = (
    "hostcall: %s partitions the compiled function around it: nothing tells the shape of result "
    "%d%s.\n%s"
)
_IS_BOUNDED = (
    "hostcall: %s partitions the compiled function around it: %s. What comes after it is compiled "
    "again for each size. To keep one program, do without that op, or do its work in the callback. "
    "To say that partitioning is fine: %s"
)
_IS_REFUSED = (
    "hostcall: XLA does not compile {what} as it is: {reason}. On the host: {ops}; {rest}. "
    "hostcall.explain shows it; hostcall.configure(uncompilable='error') makes it an error."
)
_expected: dict[str, tuple[str, str]] = {}

_IS_OUTGROWN = (
    "hostcall: a cluster of %s was compiled %s, and comes with other sizes still. From "
    "now on TensorFlow's kernels run it for new ones. hostcall.configure(max_compilations=...) "
    "sets the bound; hostcall.stats().compilations counts."
)

# Replaces the list of host ops if no op is on the host because of its type.
_NOTHING = "what passes values from one part to the next"

_MANY_OPS = 8  # the most ops that one line names


def announce_script_ops(library: FunctionDefLibrary) -> None:
    """Log, once for each place, that a callback partitions functions without a request for it."""
    for node in function_defs.all_nodes(library, op_kinds.SCRIPT_OPS):
        choice = route_selection.choose(node)
        spec = lookup.entry_of(node)
        if not isinstance(spec, CallbackSpec) or spec.description in _told:
            continue
        fine = advice.partitioning_is_fine(spec)
        if choice.wants_shape:
            known = route_selection.known_results(spec, node)
            index, said = next(iter(route_selection.unknown_results(spec, known).items()))
            lines = advice.in_lines(spec, known, f"To say that partitioning is fine: {fine}")
            is_known = advice.what_is_known(said)
            _log.warning(_WANTS_SHAPE, spec.description, index, is_known, lines)
        elif choice.is_bounded:
            _log.warning(_IS_BOUNDED, spec.description, choice.reason, fine)
        if choice.wants_shape or choice.is_bounded:
            _told.add(spec.description)


def warn_outgrown(cluster: str) -> None:
    """Log, once for each function, that one of its clusters is not compiled for new sizes."""
    name = function_names.plain(cluster)
    times = counted(settings.current.max_compilations, "time")
    if (line := _IS_OUTGROWN % (name, times)) not in _told:
        _told.add(line)
        _log.warning("%s", line)


def expect_clusters(entry: str, refusal: str, plans: Iterable[PartitionedFunction]) -> None:
    """Prepare the log line on a function that XLA refuses and hostcall partitioned."""
    plans = list(plans)
    ops = {op for plan in plans for op in plan.must_be_on_host}
    ops = ops or {op for plan in plans for op in plan.calls_on_host}
    count = sum(len(plan.clusters) for plan in plans)
    compiled = f"the rest runs in {counted(count, 'compiled cluster')}"
    _expect(entry, refusal, ops, compiled if count else "nothing of it is compiled")


def expect_regions(entry: str, refusal: str, functions: Iterable[FunctionDef]) -> None:
    """Prepare the log line on a function that XLA refuses, now a program with regions."""
    ops = {node.op for function in functions for node in function.node_def if node.op != "Const"}
    _expect(entry, refusal, ops, "the rest is one program, which calls them")


def tell(entry: str) -> None:
    """Log, once for each function, the prepared line: the function's replacement has run."""
    what, line = _expected.pop(entry, ("", ""))
    if what and what not in _told:  # a function is traced, and refused, for each shape
        _told.add(what)
        _log.warning("%s", line)


def _expect(entry: str, refusal: str, ops: Iterable[str], rest: str) -> None:
    """Prepare a log line, with its subject."""
    if SUFFIX in entry:  # a cluster, in which the search found an op that XLA does not name
        rest = "the rest is compiled"
    name = function_names.plain(entry)
    place = node_places.in_message(refusal)
    what = f"{name} ({place})" if place else name
    named = sorted(ops)
    listed = ", ".join(named[:_MANY_OPS]) + (", ..." if len(named) > _MANY_OPS else "")
    reason = refusals.in_words(refusal)
    line = _IS_REFUSED.format(what=what, reason=reason, ops=listed or _NOTHING, rest=rest)
    _expected[entry] = what, line
