"""From a function that XLA refuses to a program that calls regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from hostcall._callbacks import requested_routes
from hostcall._compiler import lost_order
from hostcall._compiler.effects import Effects
from hostcall._compiler.partition.host_ops import HostOps
from hostcall._compiler.regions.references import NotWholeError, References, is_call
from hostcall._compiler.regions.rewriting import Rewriter
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary, NodeDef

_STRING, _VARIANT = tf.string.as_datatype_enum, tf.variant.as_datatype_enum
_IDENTITIES = frozenset({"Identity", "IdentityN"})


class Region(NamedTuple):
    """Nodes that the program calls.

    Attributes:
      name: of their function.
      function: the one that they are of, as it was.
      nodes: their names.
      inputs: the values in that function which the region takes, in the order of its arguments.
    """

    name: str
    function: str
    nodes: list[str]
    inputs: list[str]


class Program(NamedTuple):
    """A function that is one program, with regions.

    Attributes:
      name: of the function.
      library: a FunctionDefLibrary of all that is compiled.
      functions: those of the regions.
      regions: what they are, in the order of their indices.
    """

    name: str
    library: FunctionDefLibrary
    functions: list[Any]
    regions: list[Region]


def write(library: FunctionDefLibrary, entry: str, host_ops: HostOps, suffix: str) -> Program:
    """Makes one program of a function that holds host ops.

    Args:
      library: a FunctionDefLibrary with all that it reaches.
      entry: the name of the function.
      host_ops: says what is for the host.
      suffix: of the names of new functions.

    Raises:
      NotWholeError: when it cannot be one program.
    """
    functions = _compiled(library, entry)
    _check(functions, entry)

    def is_host_op(node: NodeDef) -> bool:
        if is_call(node, functions) or node.op == "Const":
            return False
        of_strings = node.op not in _IDENTITIES and defs.handles(node, _STRING, functions)
        if of_strings and node.op not in op_kinds.SCRIPT_OPS:
            return True
        if not host_ops.own_obstacle(node, inside_loop=True):
            return False
        if node.op in op_kinds.SCRIPT_OPS and not host_ops.choose(node).fits_region:
            raise NotWholeError("a callback is on the host")
        return True

    references = References(functions, is_host_op)
    rewriter = Rewriter(functions, references, entry, suffix)
    name = rewriter.run()
    if not rewriter.regions:
        raise NotWholeError("nothing of it is on the host")
    regions = [rewriter.functions.pop(region) for region in rewriter.regions]
    compiled = protos.function_pb2.FunctionDefLibrary(function=rewriter.functions.values())
    if not lost_order.is_kept(compiled, name):
        raise NotWholeError("XLA would not keep the order of its calls")
    members = zip(rewriter.regions, rewriter.members, strict=True)
    return Program(name, compiled, regions, [Region(name, *of) for name, of in members])


def _compiled(library: FunctionDefLibrary, entry: str) -> dict[str, Any]:
    """The functions that XLA compiles as one program, without what nothing needs, by name."""
    functions = {function.signature.name: function for function in library.function}
    found: dict[str, Any] = {}
    pending = [entry]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = protos.copy_of(functions[name])
        defs.drop_dead_nodes(found[name], functions)
        for node in found[name].node_def:
            if is_call(node, functions):
                pending += [c for c in defs.called_functions(node, functions) if c in functions]
    effects = Effects(found, op_kinds.has_effect)
    for function in found.values():
        effects.chain(function)
    return found


def _check(functions: Mapping[str, Any], entry: str) -> None:
    signature = functions[entry].signature
    if any(arg.type == _VARIANT for arg in (*signature.input_arg, *signature.output_arg)):
        raise NotWholeError("it takes or returns a value of dtype variant")
    for node in (node for function in functions.values() for node in function.node_def):
        if node.op in defs.FRAME_OPS:
            raise NotWholeError("it has TensorFlow 1's loops or branches")
        if requested_routes.asked(node) == requested_routes.PARTITION:
            raise NotWholeError("route='partition' was asked for")
        if op_kinds.lets_list_grow(node):
            raise NotWholeError("it has a list that may grow")
        if attributes.HINDERED in node.attr:
            raise NotWholeError("a size that only the run knows reaches the host")
        if attributes.BRANCHES_DIFFER in node.attr:
            raise NotWholeError("XLA ends the process where such branches hold calls")
