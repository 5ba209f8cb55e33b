"""Ops that XLA refuses: it has no kernel for them, or an error when it compiles.

TensorFlow looks for kernels after it has inlined calls, dropped their unneeded nodes, and folded
constants. So an op counts here only if it survives these steps: its result is needed, and may
differ from call to call. Doubtful ops are left for XLA to refuse.

XLA refuses a function before anything of it has run. TensorFlow then asks for a replacement
(`kernel_hook.rewrite_for_kernel`). If the message names no op, the function is cut in two clusters.
XLA then refuses one of these, which is cut in turn, until it holds a single op. That op goes to the
host. hostcall keeps XLA's message about it, so the next function with it need not be searched.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import NamedTuple

import tensorflow as tf

from hostcall._compiler import devices
from hostcall._compiler.analyses.live import LiveNodes
from hostcall._compiler.analyses.varying import VaryingValues
from hostcall._compiler.clusters.costs import TRIVIAL_OPS
from hostcall._ops import requested_routes, settings
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes, op_kinds
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef
from hostcall_runtime._errors import LoweringError

# Ops that TensorFlow compiles without a kernel.
_WITHOUT_KERNELS = op_kinds.FRAME_OPS | {"SymbolicGradient"}


class MissingKernel(NamedTuple):
    """A node that XLA has no kernel for: the names of its function and of itself, and its op."""

    function: str
    node: str
    op: str


def nodes_without_kernels(
    library: FunctionDefLibrary, entry: str, device_type: str
) -> list[MissingKernel]:
    """Find nodes for which XLA is certain to refuse a function on a type of device."""
    functions = defs.reachable(library, entry)
    lacking = {
        name: [n for n in function.node_def if _lacks_kernel(n, functions, device_type)]
        for name, function in functions.items()
    }
    if not any(lacking.values()):
        return []
    stateful = [n for n in lacking[entry] if defs.definition_of(n, functions).is_stateful]
    if stateful:  # these are never dropped or folded; a search for more would cost time
        return [MissingKernel(entry, node.name, node.op) for node in stateful]
    varying = VaryingValues(functions)
    live = LiveNodes(functions, varying, entry)
    return [
        MissingKernel(name, node.name, node.op)
        for name, nodes in lacking.items()
        for node in nodes
        if live.includes(name, node.name) and varying.includes(name, node.name)
    ]


def _lacks_kernel(node: NodeDef, functions: Functions, device_type: str) -> bool:
    if node.op in functions or node.op in _WITHOUT_KERNELS or attributes.REPLACED in node.attr:
        return False
    return not op_kinds.has_xla_kernel(node, device_type)


# A node in a message of TensorFlow's, with the node's function if that was another one.
_NODE = re.compile(r"(?:\{\{function_node (?P<function>[^}]+)\}\})?\{\{node (?P<node>[^}]+)\}\}")
_NODE_IN_WORDS = re.compile(r"\bnode `(?P<node>[^`]+)`")

# Begins the text that TensorFlow adds to XLA's own message.
_STACK = "\n\nStack trace for op definition:"
_UNSUPPORTED = "Detected unsupported operations"
_UNSUPPORTED_OP = re.compile(r"\(No registered '(\w+)' OpKernel")
_MANY_OPS = 4

# Begins the message about a variable on another device. It names the variable, but no node.
_ELSEWHERE = "Trying to access resource "

# Begins the refusals of host_region_kernel.cc.
_OF_REGION = "hostcall: ops on the host cannot be called from one program"

# Begins the refusal of a first call that creates variables, or of a mistake that the host reports.
_UNINITIALIZED = "Uninitialized arguments"

# The ops that are given the shape of their result. A result of a shape that does not fit has none.
_SHAPED = frozenset({"ExpandDims", "Reshape"})
_UNKNOWN = "must be a compile-time constant"

_GROWING = "XLA would not let the list of a tf.TensorArray grow"
_LIST = (
    "hostcall: op '{node}' writes to a list that may grow, such as that of a tf.TensorArray with "
    "dynamic_size=True. XLA would not let the list grow, and what is written behind its end would "
    "be lost. Give the tf.TensorArray its size and leave dynamic_size out, or let the function be "
    "partitioned: with route='auto' and hostcall.configure(uncompilable='partition')."
)


def may_partition(library: FunctionDefLibrary) -> bool:
    """Return whether the user allows partitioning of a function that XLA refuses."""
    if settings.current.uncompilable == settings.ERROR:
        return False
    return not any(
        node.op not in op_kinds.SCRIPT_OPS
        and requested_routes.asked(node) == requested_routes.CUSTOM_CALL
        for node in defs.all_nodes(library)
    )


def is_of_xla(refusal: str) -> bool:
    """Return whether XLA refuses the user's code, not a region of hostcall's, in every call."""
    return bool(refusal) and not refusal.startswith((_OF_REGION, _UNINITIALIZED))


def is_of_device(refusal: str) -> bool:
    """Return whether XLA refuses a function for a variable on another device."""
    return refusal.startswith(_ELSEWHERE)


def is_of_shape(library: FunctionDefLibrary, refusal: str) -> bool:
    """Return whether XLA knows the shape that a node is given, and refuses it."""
    if _UNKNOWN in refusal:
        return False
    return any(node.op in _SHAPED for node in _named(library, refusal))


def silent_refusal(library: FunctionDefLibrary) -> str:
    """Return an error that XLA makes silently: a list cannot grow; or ""."""
    found = defs.all_nodes(library, {op_kinds.LIST_WRITE})
    return _GROWING if any(map(op_kinds.lets_list_grow, found)) else ""


def check_lists(library: FunctionDefLibrary) -> None:
    """Raise a LoweringError if a list may grow in a compiled function: XLA's lists cannot."""
    writes = defs.all_nodes(library, {op_kinds.LIST_WRITE})
    for node in filter(op_kinds.lets_list_grow, writes):
        raise LoweringError(_LIST.format(node=node.name))


def mark_named(library: FunctionDefLibrary, refusal: str) -> None:
    """Mark the nodes that XLA refuses by its message, in place."""
    if not refusal.startswith(_UNSUPPORTED):  # `HostOps` finds all of these itself
        found = _users_of_resources(library) if is_of_device(refusal) else _named(library, refusal)
        for node in found:
            mark(node, refusal)


def mark(node: NodeDef, refusal: str) -> None:
    """Mark a node as refused by XLA, with the reason."""
    node.attr[attributes.REFUSED].s = f"XLA refuses it: {summary(refusal)}".encode()


def digest(library: FunctionDefLibrary, refusal: str) -> str:
    """Return letters for the names of functions: XLA may refuse one twice, for other reasons."""
    refused = sorted(
        (function.signature.name, node.name, node.attr[attributes.REFUSED].s)
        for function in library.function
        for node in function.node_def
        if attributes.REFUSED in node.attr
    )
    return hashlib.blake2b(repr((summary(refusal), refused)).encode(), digest_size=4).hexdigest()


def summary(refusal: str) -> str:
    """Return the first line of XLA's message, without the text that TensorFlow adds."""
    text = refusal.partition(_STACK)[0].strip().splitlines()
    return text[0].strip().rstrip(".") if text else "it gives no reason"


def in_words(refusal: str) -> str:
    """Return the reason in a message, for the log."""
    if not refusal.startswith(_UNSUPPORTED):
        return f"{summary(refusal)!r}"
    ops = [*dict.fromkeys(_UNSUPPORTED_OP.findall(refusal))]
    return f"it has no kernels for {', '.join(ops[:_MANY_OPS])}" if ops else summary(refusal)


def predicted(library: FunctionDefLibrary, entry: str, device_type: str = "CPU") -> str:
    """Return the refusal of a function if it is known before XLA compiles the function, or ""."""
    signature = defs.by_name(library)[entry].signature
    host_dtypes = (defs.STRING, defs.VARIANT)
    values = [("argument", arg) for arg in signature.input_arg if arg.type in host_dtypes]
    values += [("result", r) for r in signature.output_arg if r.type == defs.VARIANT]
    for what, value in values:
        name = tf.as_dtype(value.type).name
        return f"{what} '{value.name}' is of dtype {name}, which XLA has no values for"
    if said := silent_refusal(library):
        return said
    for missing in nodes_without_kernels(library, entry, device_type):
        return f"{_UNSUPPORTED}: {missing.op} has no XLA kernel {{{{node {missing.node}}}}}"
    return ""


def _named(library: FunctionDefLibrary, refusal: str) -> list[NodeDef]:
    """Return the nodes that a message names, innermost first; none if the library lacks them."""
    matches = [*_NODE.finditer(refusal), *_NODE_IN_WORDS.finditer(refusal)]
    if refusal.startswith("hostcall: "):  # these messages name the checked op in words
        matches.sort(key=lambda match: match.re is not _NODE_IN_WORDS)
    for match in matches:
        function = match.groupdict().get("function")
        found = [
            node
            for f in library.function
            if function is None or f.signature.name == function
            for node in f.node_def
            if node.op != "Const"
            # XLA prefixes inlined nodes.
            and (match["node"] == node.name or match["node"].endswith(f"/{node.name}"))
        ]
        if found:
            return found
    return []


def _users_of_resources(library: FunctionDefLibrary) -> list[NodeDef]:
    """Return the nodes that use variables themselves, not through a function that they call."""
    functions = defs.by_name(library)
    return [
        node
        for node in defs.all_nodes(library)
        if defs.handles(node, defs.RESOURCE, functions)
        and not defs.called_functions(node, functions)
    ]


# The types of the ops that the search has found, by XLA's message.
_found: defaultdict[str, set[str]] = defaultdict(set)


def mark_found(library: FunctionDefLibrary, refusal: str) -> None:
    """Mark the ops that XLA has refused before with the same message, in place."""
    said = summary(refusal)
    for node in defs.all_nodes(library, _found.get(said, ())):
        mark(node, refusal)


def narrow(library: FunctionDefLibrary, entry: str, refusal: str) -> None:
    """Cut a function that XLA refuses in two, or put it on the host, in place."""
    functions = defs.by_name(library)
    function = functions[entry]
    for node in function.node_def:
        node.attr.pop(attributes.LATER, None)  # from the cut that made this function
    ordered = defs.program_order(function)
    trivial = {"Const", *TRIVIAL_OPS}
    work = [i for i, node in enumerate(ordered) if node.op not in trivial]
    # Lists that nodes pass each other cannot leave a program.
    passes_lists = any(defs.handles(node, defs.VARIANT, functions) for node in function.node_def)
    if len(work) > 1 and not passes_lists:
        for node in ordered[work[len(work) // 2] :]:
            node.attr[attributes.LATER].b = True
        return
    nodes = [ordered[i] for i in work] if len(work) == 1 else ordered
    for node in nodes:
        mark(node, refusal)
    if len(work) == 1 and defs.called_functions(nodes[0], functions):
        nodes[0].attr[attributes.LATER].b = True  # the search goes on in its callees
    elif len(work) == 1:
        _found[summary(refusal)].add(nodes[0].op)


def goes_on(function: FunctionDef) -> bool:
    """Return whether a function was cut or its callees will be, so that the search goes on."""
    return any(attributes.LATER in node.attr for node in function.node_def)


def note_refused(entry: str, device: str, refusal: str) -> None:
    """Note what XLA has said about a function for a device, so that it is explained as it runs."""
    concrete_functions.note(entry, devices.type_of(device), refusal)


def refused_parts(entry: str, device: str) -> list[str]:
    """Return what XLA has said about the clusters of a function that it has refused as well."""
    kind = devices.type_of(device)
    parts = dict.fromkeys(concrete_functions.derived_from(entry))
    said = (concrete_functions.noted(name, kind) for name in parts)
    return [summary(refusal) for refusal in said if is_of_xla(refusal)]
