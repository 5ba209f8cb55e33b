"""Marks on the ops that XLA may get wrong: those that bounded sizes put on the host, and others.

In functions that hostcall changes, these ops are on the host. Other functions are compiled as stock
TensorFlow does, unless `hostcall.configure(dynamic_sizes="checked")`; explanations name the ops.
`search.py` finds the ops that bounded sizes reach; `checks.py` adds what only XLA can tell.
"""

from __future__ import annotations

from collections.abc import Collection

from hostcall._compiler import four_bits, ops, route_selection, wrong_kernels
from hostcall._compiler.analyses.sizes import Source
from hostcall._compiler.semantics import random_numbers
from hostcall._compiler.sizes import checks, search, sources
from hostcall._compiler.sizes.search import Search
from hostcall._tf.graph import attributes, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions

# Functions without any of these ops need no marks.
KINDS = frozenset(sources.ALWAYS | sources.BY_OPERANDS.keys() | checks.CHECKED | ops.DIFFERENT)

_WRONG = "XLA computes something else than TensorFlow: {reason}"


def marked_for_host(
    library: FunctionDefLibrary, entry: str, compiled: bool = False, device: str = ""
) -> FunctionDefLibrary:
    """Return a copy with marks for the host on ops that XLA, if `compiled`, would get wrong."""
    # The full name of the `device` is "" for the CPU.
    separated = random_numbers.are_those_of_graph_mode() and not device
    labeled = compiled and not device
    # TensorFlow's kernels for accelerators have values of their own.
    of_graph = not device
    copy = marked(
        library,
        entry,
        compiled=compiled,
        labeled=labeled,
        separated=separated,
        of_graph=of_graph,
    )
    for node, _, reason in wrong_kernels.for_host(copy.function, of_graph):
        node.attr[attributes.WRONG].s = _WRONG.format(reason=reason).encode()
    four_bits.mark_variables(copy)
    return copy


def risks(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that XLA may get wrong if it compiles a function whole, with the reasons."""
    found = {}
    for name, function in defs.reachable(library, entry).items():
        nodes = {node.name: node for node in function.node_def}
        for node in defs.nodes_of(function, ops.DIFFERENT):
            if (difference := wrong_kernels.difference(node, nodes)) is not None:
                found[name, node.name] = _WRONG.format(reason=difference.reason)
    return found | Search(protos.copy_of(library), entry).at_risk()


def marked(
    library: FunctionDefLibrary,
    entry: str,
    whole: bool = False,
    compiled: bool = False,
    labeled: bool = False,
    separated: bool = False,
    of_graph: bool = True,
) -> FunctionDefLibrary:
    """Return a copy with marks on the ops that the sizes they make or take force onto the host."""
    # If `whole`, no op can be on the host. If XLA gets exactly the functions that are returned,
    # `compiled`, facts that only XLA can tell are checked there, say equal branch sizes; and
    # changed functions get new names. If `labeled`, ops take the kernels of hostcall's that are
    # faster than XLA's. If `separated`, its random numbers are those of graph mode. Unless it is
    # `of_graph`, its values are XLA's where these are not plainly wrong, whatever the settings.
    copy = protos.copy_of(library)
    drawing = random_numbers.separate(copy, entry) if separated else set[str]()
    is_on_host = search.never if whole else route_selection.is_on_host
    found = Search(copy, entry, is_on_host, of_graph)
    found.run()
    marked_nodes = [*found.script_ops, *found.blocked, *found.bounded]
    for name in dict.fromkeys(name for name, _ in marked_nodes):
        _mark(name, found.functions[name], found)
    if compiled:
        checked = checks.add(found) if found.has(checks.CHECKED) else set[str]()
        if labeled and (found.replaced or found.has({"Where"})):
            checked |= checks.label(found)
        _rename(found.functions, found.replaced | checked | drawing, entry)
    return copy


def find_blockers(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that block a function from being one program, with the reasons."""
    found = Search(protos.copy_of(library), entry)
    found.run()
    return found.blocked


def _mark(name: str, function: FunctionDef, found: Search) -> None:
    """Mark the ops of a function that are blocked or have bounded results."""
    names = {n for places in (found.blocked, found.bounded) for f, n in places if f == name}
    nodes = defs.nodes_of(function, op_kinds.SCRIPT_OPS)
    if names:
        nodes += [node for node in function.node_def if node.name in names]
    for node in nodes:
        place = (name, node.name)
        if place in found.blocked:
            node.attr[attributes.BLOCKER].s = found.blocked[place].encode()
        else:
            dims = sorted(found.bounded.get(place, ()))
            protos.set_pairs(node, attributes.PREDICTED, dims)


def _rename(functions: Functions, changed: Collection[str], entry: str) -> None:
    """Rename changed functions and their callers, in place; `entry` gets its new name later."""
    new_names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name in functions and name not in new_names:
            new_names[name] = name  # XLA compiles no recursion
            calls = defs.calls_in(functions[name], functions)
            redirected = [defs.redirect(node, functions, renamed) for node in calls]
            if name in changed or any(redirected):
                new_names[name] = name + function_names.digest_of_functions([functions[name]])
        return new_names.get(name, name)

    for name in functions if changed else ():
        if renamed(name) != name and name != entry:
            functions[name].signature.name = new_names[name]
