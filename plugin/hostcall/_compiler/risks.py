"""Ops that XLA itself may get wrong: ops with sizes known only at run time, and wrong kernels.

In functions that hostcall changes, these ops are on the host. Other functions are compiled as stock
TensorFlow does, unless `hostcall.configure(dynamic_sizes="checked")`; explanations name the ops.
"""

from __future__ import annotations

from typing import Any

from hostcall._compiler import wrong_kernels
from hostcall._compiler.bounded import analysis, sources
from hostcall._compiler.bounded.sizes import Source
from hostcall._tf import attributes
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary

# Functions without any of these ops need no check.
KINDS = frozenset(
    sources.ALWAYS
    | sources.BY_OPERANDS.keys()
    | analysis.KINDS
    | wrong_kernels.WRONG_KERNELS.keys()
)
# The other ops get replacements, which may contain the same op and so must not be marked.
_FOR_HOST = wrong_kernels.WRONG_KERNELS.keys() - wrong_kernels.TABLE.keys()

_WRONG = "XLA computes something else than TensorFlow: {reason}"


def marked(library: FunctionDefLibrary, entry: str, compiled: bool = False) -> Any:
    """Return a copy with marks on the ops of a function that XLA would get wrong, for the host.

    `compiled` tells whether XLA compiles the very functions that are returned.
    """
    copy = analysis.marked(library, entry, compiled=compiled)
    for function in copy.function:
        for node in defs.nodes_of(function, _FOR_HOST):
            if reason := wrong_kernels.reason(node):
                node.attr[attributes.WRONG].s = _WRONG.format(reason=reason).encode()
    return copy


def find(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops of a function that XLA may get wrong, with the reasons, in no order."""
    found = {}
    for name, function in defs.reachable(library, entry).items():
        nodes = {node.name: node for node in function.node_def}
        for node in defs.nodes_of(function, wrong_kernels.WRONG_KERNELS):
            if reason := wrong_kernels.reason(node, nodes):
                found[name, node.name] = _WRONG.format(reason=reason)
    return found | analysis.at_risk(library, entry)
