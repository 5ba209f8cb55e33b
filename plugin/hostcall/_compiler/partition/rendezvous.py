"""The rendezvous of partitioned functions: what their parts on several devices meet by.

TensorFlow's kernels of calls make one by what the function runtime was given, and some runtimes,
such as that of an iterator which sessions share, were given nothing. hostcall's kernels bring one
with them (partitioned_function_kernel.cc).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostcall._tf import attributes
from hostcall._tf import function_defs as defs

# On a function: TensorFlow hands it the rendezvous of the kernel that calls it.
_SHARED_ATTR = "shared_rendezvous"


def bring_rendezvous(functions: Mapping[str, Any]) -> None:
    """Has the calls of partitioned functions bring a rendezvous, each of them one of its own.

    Args:
      functions: the FunctionDefs that have come out of a partitioning, by name.
    """
    on_host = {name for name, f in functions.items() if attributes.CLUSTER not in f.attr}
    for name in on_host:
        functions[name].attr[_SHARED_ATTR].b = True
        for node in functions[name].node_def:
            if node.op in defs.CALL_OPS and node.attr["f"].func.name in on_host:
                node.attr[attributes.INNER_CALL].b = True
