"""XLA's refusals: what its messages mean, and the search for the op they are about.

XLA refuses a function when it comes to compile it, before anything of it has run. TensorFlow asks
then for what runs in the function's place (`kernel_hook.rewrite_for_kernel`). A function that XLA
compiles never comes here, so that its program is the one that it is without hostcall.

A function that is refused so is cut in two, each half a cluster. XLA then refuses one of these, and
that is cut in turn, until it holds a single op: that one goes to the host. What XLA has said of it
is kept, so that the next function with such an op need not be searched.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from typing import Any

import tensorflow as tf

from hostcall._callbacks import requested_routes, settings
from hostcall._compiler import missing_kernels
from hostcall._compiler.partition.boundary_values import TRIVIAL_OPS
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime._errors import LoweringError

# How TensorFlow names a node, and the function of a node that was in another one.
_NODE = re.compile(r"(?:\{\{function_node (?P<function>[^}]+)\}\})?\{\{node (?P<node>[^}]+)\}\}")
_NODE_IN_WORDS = re.compile(r"\bnode `(?P<node>[^`]+)`")
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_HOST_DTYPES = (tf.string.as_datatype_enum, tf.variant.as_datatype_enum)

# What follows what XLA has said itself.
_STACK = "\n\nStack trace for op definition:"
_UNSUPPORTED = "Detected unsupported operations"
_UNSUPPORTED_OP = re.compile(r"\(No registered '(\w+)' OpKernel")
_MANY_OPS = 4

# Of a variable on another device than the function's, which it names as nodes do not.
_ELSEWHERE = "Trying to access resource "
_RESOURCE = tf.resource.as_datatype_enum

# How region_kernel.cc refuses.
_OF_REGION = "hostcall: ops on the host cannot be called from one program"

# Of the first call of a function that creates variables, or of a mistake that the host tells of.
_UNINITIALIZED = "Uninitialized arguments"

_GROWING = "XLA would not let the list of a tf.TensorArray grow"
_DROPPED = "XLA would drop its assertions"
_LIST = (
    "hostcall: op '{node}' writes to a list that may grow, such as that of a tf.TensorArray with "
    "dynamic_size=True. XLA would not let the list grow, and what is written behind its end would "
    "be lost. Give the tf.TensorArray its size and leave dynamic_size out, or let the function be "
    "partitioned: with route='auto' and hostcall.configure(uncompilable='partition')."
)


def may_partition(library: FunctionDefLibrary) -> bool:
    """Whether a function that XLA refuses may be partitioned, as far as the user is concerned.

    Args:
      library: a FunctionDefLibrary with all that it reaches.
    """
    if settings.uncompilable() == settings.ERROR:
        return False
    nodes = (node for function in library.function for node in function.node_def)
    return not any(
        node.op not in op_kinds.SCRIPT_OPS
        and requested_routes.asked(node) == requested_routes.CUSTOM_CALL
        for node in nodes
    )


def is_of_xla(refusal: str) -> bool:
    """Whether XLA refuses what the user wrote, and no region of hostcall's, and in each call."""
    return bool(refusal) and not refusal.startswith((_OF_REGION, _UNINITIALIZED))


def is_of_device(refusal: str) -> bool:
    """Whether XLA refuses a function for a variable on another device."""
    return refusal.startswith(_ELSEWHERE)


def of_silence(library: FunctionDefLibrary) -> str:
    """What XLA does not say: that it would not let a list grow, or drop an assertion; or ""."""
    kinds = {op_kinds.LIST_WRITE, *op_kinds.CHECKS}
    found = [node for function in library.function for node in defs.nodes_of(function, kinds)]
    if any(map(op_kinds.lets_list_grow, found)):
        return _GROWING
    checks = any(node.op in op_kinds.CHECKS for node in found)
    return _DROPPED if checks and settings.assertions() else ""


def check_lists(library: FunctionDefLibrary) -> None:
    """Makes sure that a function which is compiled whole loses nothing that it writes.

    Args:
      library: a FunctionDefLibrary with all that it reaches.

    Raises:
      LoweringError: where a list may grow, which no list of XLA's does.
    """
    for function in library.function:
        for node in filter(op_kinds.lets_list_grow, function.node_def):
            raise LoweringError(_LIST.format(node=node.name))


def marked(library: FunctionDefLibrary, refusal: str) -> Any:
    """A copy of a library, whose nodes say that XLA refuses them.

    Args:
      library: a FunctionDefLibrary.
      refusal: XLA's message.
    """
    copy = protos.copy_of(library)
    if not refusal.startswith(_UNSUPPORTED):  # which `HostOps` finds by itself, all of them
        found = _users_of_resources(copy) if is_of_device(refusal) else _named(copy, refusal)
        for node in found:
            mark(node, refusal)
    return copy


def mark(node: NodeDef, refusal: str) -> None:
    """Has a node say that XLA refuses it."""
    node.attr[attributes.REFUSED].s = f"XLA refuses it: {summary(refusal)}".encode()


def digest(library: FunctionDefLibrary, refusal: str) -> str:
    """Letters for the names of functions: XLA may refuse a function twice, for other reasons."""
    refused = sorted(
        (function.signature.name, node.name, node.attr[attributes.REFUSED].s)
        for function in library.function
        for node in function.node_def
        if attributes.REFUSED in node.attr
    )
    return hashlib.blake2b(repr((summary(refusal), refused)).encode(), digest_size=4).hexdigest()


def summary(refusal: str) -> str:
    """The first sentence of a message of XLA's, without what TensorFlow adds to it."""
    text = refusal.partition(_STACK)[0].strip().splitlines()
    return text[0].strip().rstrip(".") if text else "it gives no reason"


def in_words(refusal: str) -> str:
    """The reason in a message, for the log."""
    if not refusal.startswith(_UNSUPPORTED):
        return f"{summary(refusal)!r}"
    ops = [*dict.fromkeys(_UNSUPPORTED_OP.findall(refusal))]
    return f"it has no kernels for {', '.join(ops[:_MANY_OPS])}" if ops else summary(refusal)


def line_of(refusal: str) -> str:
    """`file:line` of the user's code that has made the op which a message names, or ""."""
    # The innermost frame of the first trace; what follows it is about the functions around.
    head, *_ = refusal.partition("tf2xla conversion failed")
    lines = list(_LINE.finditer(head))
    return f"{lines[-1]['file']}:{lines[-1]['line']}" if lines else ""


def foreseen(library: FunctionDefLibrary, entry: str, device_type: str = "CPU") -> str:
    """What XLA will say of a function, as far as that is known before it compiles; or "".

    Args:
      library: a FunctionDefLibrary with all that it reaches.
      entry: its name.
      device_type: of the device that it is compiled for.
    """
    functions = {function.signature.name: function for function in library.function}
    signature = functions[entry].signature
    values = [("argument", arg) for arg in signature.input_arg if arg.type in _HOST_DTYPES]
    values += [("result", r) for r in signature.output_arg if r.type in _HOST_DTYPES[1:]]
    for what, value in values:
        name = tf.as_dtype(value.type).name
        return f"{what} '{value.name}' is of dtype {name}, which XLA has no values for"
    if said := of_silence(library):
        return said
    for missing in missing_kernels.find(library, entry, device_type):
        return f"{_UNSUPPORTED}: {missing.op} has no XLA kernel {{{{node {missing.node}}}}}"
    return ""


def _named(library: FunctionDefLibrary, refusal: str) -> list[NodeDef]:
    """The nodes that a message names; none where it names nodes that the library lacks.

    A message names the innermost node first, and after it the loops and branches around that.
    """
    matches = [*_NODE.finditer(refusal), *_NODE_IN_WORDS.finditer(refusal)]
    if refusal.startswith("hostcall: "):  # our own words name the op that a check is about
        matches.sort(key=lambda match: match.re is not _NODE_IN_WORDS)
    for match in matches:
        function = match.groupdict().get("function")
        found = [
            node
            for f in library.function
            if function is None or f.signature.name == function
            for node in f.node_def
            if _is_named(node, match["node"])
        ]
        if found:
            return found
    return []


def _users_of_resources(library: FunctionDefLibrary) -> list[NodeDef]:
    """The nodes that work with variables themselves, and call no function that does."""
    functions = {function.signature.name: function for function in library.function}
    return [
        node
        for function in library.function
        for node in function.node_def
        if defs.handles(node, _RESOURCE, functions) and not defs.called_functions(node, functions)
    ]


def _is_named(node: NodeDef, name: str) -> bool:
    """Whether a message may call a node so: XLA puts the call before what it has inlined."""
    return node.op != "Const" and (name == node.name or name.endswith(f"/{node.name}"))


_VARIANT = tf.variant.as_datatype_enum

# The ops that were found, by what XLA has said.
_found: defaultdict[str, set[str]] = defaultdict(set)


def mark_found(library: FunctionDefLibrary, refusal: str) -> None:
    """Mark the ops that XLA has refused before in the same words.

    Args:
      library: a FunctionDefLibrary, which is changed.
      refusal: XLA's message.
    """
    said = summary(refusal)
    for function in library.function:
        for node in defs.nodes_of(function, _found.get(said, ())):
            mark(node, refusal)


def narrow(library: FunctionDefLibrary, entry: str, refusal: str) -> None:
    """Cut a refused function in two, or put it on the host where it cannot be cut.

    Args:
      library: a FunctionDefLibrary, which is changed.
      entry: the name of the function.
      refusal: XLA's message, which names none of its nodes.
    """
    functions = {function.signature.name: function for function in library.function}
    function = functions[entry]
    for node in function.node_def:
        node.attr.pop(attributes.LATER, None)  # of the cut that the function has come from
    nodes = [node for node in defs.program_order(function) if _is_work(node)]
    if len(nodes) > 1 and not _passes_lists(function, functions):
        for node in _from(function, nodes[len(nodes) // 2]):
            node.attr[attributes.LATER].b = True
        return
    for node in nodes if len(nodes) == 1 else function.node_def:
        mark(node, refusal)
    if len(nodes) == 1 and defs.called_functions(nodes[0], functions):
        nodes[0].attr[attributes.LATER].b = True  # the search goes on in what it calls
    elif len(nodes) == 1:
        _found[summary(refusal)].add(nodes[0].op)


def goes_on(function: FunctionDef) -> bool:
    """Tell whether a function was cut, or what it calls is, so that an op is still looked for."""
    return any(attributes.LATER in node.attr for node in function.node_def)


def _is_work(node: NodeDef) -> bool:
    return node.op != "Const" and node.op not in TRIVIAL_OPS


def _passes_lists(function: FunctionDef, functions: dict[str, Any]) -> bool:
    """Whether nodes of a function pass each other values that cannot leave a program."""
    return any(defs.handles(node, _VARIANT, functions) for node in function.node_def)


def _from(function: FunctionDef, first: NodeDef) -> list[NodeDef]:
    """A node of a function and those that come after it."""
    ordered = defs.program_order(function)
    return ordered[[node.name for node in ordered].index(first.name) :]
