"""The passes over a program, in their order: before the verdict of `plan.py`, and after it.

Passes that rewrite ops do so in place, and return the names of the changed functions. Those that
raise errors and order calls return new functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hostcall._compiler import (
    constants,
    devices,
    four_bits,
    ops,
    refusals,
    route_selection,
    wrong_kernels,
)
from hostcall._compiler.analyses import turns
from hostcall._compiler.analyses.sizes import Source
from hostcall._compiler.clusters import execution, host_calls, placement
from hostcall._compiler.clusters.partitioner import Partitioner
from hostcall._compiler.one_program import async_calls, distinct_results, ordering
from hostcall._compiler.semantics import failures, random_numbers
from hostcall._compiler.sizes import checks, marks, shape_agnostic, sources, windows
from hostcall._compiler.sizes.search import Search
from hostcall._ops import lookup, settings
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary

# The ops that XLA may compile to something else than TensorFlow runs.
EXAMINED = frozenset(
    sources.ALWAYS | sources.BY_OPERANDS.keys() | checks.CHECKED | ops.DIFFERENT
) | {name for name, op in ops.OPS.items() if op.checks}


def before_verdict(
    library: FunctionDefLibrary,
    entry: str,
    device: str,
    refusal: str,
    is_compiled: bool,
    may_change: bool,
) -> FunctionDefLibrary:
    """Return a copy of a library with marks on the ops that must be on the host."""
    # The full name of the `device` is "" for the CPU. `refusal` is XLA's message, if it has refused
    # the function. `is_compiled` tells whether XLA gets, in this process, what the copy holds.
    program = protos.copy_of(constants.folded(library, entry) if may_change else library)
    shape_agnostic.record(program, entry)
    if may_change:
        keep_graph_mode(program, entry, device, is_compiled)
    if refusal:
        refusals.mark_named(program, refusal)
        refusals.mark_found(program, refusal)
    return program


def keep_graph_mode(
    program: FunctionDefLibrary, entry: str, device: str = "", is_compiled: bool = False
) -> None:
    """Give a program graph mode's values, and mark the ops that XLA would get wrong."""
    # TensorFlow's kernels for accelerators have values of their own.
    of_graph = not device
    changed = random_numbers.separate(program, entry) if of_graph else set[str]()
    search = Search(program, entry, route_selection.is_on_host)
    changed |= _rewrite_ops(search, of_graph)
    marks.mark(search)
    if is_compiled:
        changed |= checks.add(search)
        if of_graph:
            changed |= checks.label(search)
        function_edits.rename_changed(search.functions, changed, entry)
    wrong_kernels.mark(program, of_graph)
    four_bits.mark_variables(program)


def keep_whole(program: FunctionDefLibrary, entry: str, of_graph: bool) -> dict[Source, str]:
    """Give a program without host ops graph mode's values; return the ops that block it."""
    search = Search(program, entry)
    changed = _rewrite_ops(search, of_graph)
    if not search.blocked:
        marks.mark(search)
        changed |= checks.add(search)
        function_edits.rename_changed(search.functions, changed, entry)
    return search.blocked


def find_blockers(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that block a function from being one program, with the reasons."""
    search = Search(protos.copy_of(library), entry)
    _rewrite_ops(search, of_graph=True)
    return search.blocked


def _rewrite_ops(search: Search, of_graph: bool) -> set[str]:
    """Write ops that XLA gets wrong in other ops; find those that bounded sizes put on the host."""
    changed = set[str]()
    if search.has(ops.DIFFERENT):
        changed |= wrong_kernels.replace(search.compiled, of_graph)
    if search.any_may_be_bounded():
        changed |= wrong_kernels.replace_ones_like(search.compiled)
        changed |= sources.open_sizes(search.functions, search.unequal) & search.compiled.keys()
        search.run()
        changed |= windows.keep_within(search.compiled, search.windows)
    return changed


def find_risks(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that XLA may get wrong if it compiles a function whole, with the reasons."""
    search = Search(library, entry)
    return wrong_kernels.find_risks(search.functions) | search.find_risks()


def raise_errors(
    library: FunctionDefLibrary, entry: str, accelerator: str = ""
) -> tuple[FunctionDefLibrary, str]:
    """Return a library whose program raises graph mode's errors, and a suffix for names of it."""
    # TensorFlow's kernels for GPUs do not raise, either.
    if accelerator or settings.current.semantics == settings.XLA:
        return library, ""
    raising = failures.add(library, entry)
    return raising, "__raising" if raising is not library else ""


def keep_results_apart(library: FunctionDefLibrary, entry: str) -> None:
    """Make the bounded results of one program distinct values."""
    functions = defs.by_name(library)
    distinct_results.keep_apart(functions[entry], functions)


def order_calls(
    library: FunctionDefLibrary, entry: str, suffix: str, accelerator: str = ""
) -> tuple[FunctionDefLibrary, FunctionDef]:
    """Return new functions whose calls are in order and overlap, and the one for the entry."""
    new, name = ordering.order_side_effects(library, entry, suffix + ordering.SUFFIX)
    # On GPUs, XLA waits for each custom call.
    if devices.type_of(accelerator) != devices.GPU:
        async_calls.begin_early(new, name, library)
    ordered = defs.by_name(new)[name]
    _mark_entry(ordered, defs.all_nodes(library, op_kinds.SCRIPT_OPS))
    return new, ordered


def finish_clusters(partitioner: Partitioner, accelerator: str, is_one_device: bool) -> None:
    """Finish the functions that a program was partitioned into, for the devices that run them."""
    functions, old = partitioner.functions, defs.by_name(partitioner.library)
    for function in functions.values():
        if attributes.CLUSTER in function.attr:
            distinct_results.keep_apart(function, old | functions)
    host_calls.redirect(functions.values())
    execution.bring_rendezvous(functions)
    if accelerator:
        placement.carry(functions, old)
    if is_one_device:
        execution.run_in_sequence(functions, old)
        execution.share(functions, old)


def _mark_entry(entry: FunctionDef, script_ops: Iterable[Any]) -> None:
    """Record on the entry of a program whether its calls share memory or take turns."""
    nodes = [*script_ops]
    entry.attr[attributes.SHARES_MEMORY].b = any(
        isinstance(e, CallbackSpec) and e.user.shares_memory for e in map(lookup.entry_of, nodes)
    )
    # Calls with side effects are ordered by their tokens.
    entry.attr[attributes.TAKES_TURNS].b = any(map(turns.takes_turns, nodes))
