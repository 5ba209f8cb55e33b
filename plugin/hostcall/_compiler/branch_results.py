"""Branches with side effects, whose results are compared while XLA compiles them.

Where their shapes differ, XLA would end the process: `csrc/tensorflow/branch_results.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from hostcall._tf.types import FunctionDef

_NAME = "hostcall_branch_results"

# XLA has no arrays of these.
_OTHERS = frozenset(t.as_datatype_enum for t in (tf.resource, tf.variant, tf.string))


def compare_results(branch: FunctionDef, conditional: str, branches: Sequence[str]) -> None:
    """Lets the results of a branch pass through a node that compares their shapes.

    Args:
      branch: a FunctionDef, changed in place.
      conditional: the name of the node whose branch it is.
      branches: the names of all its branches, in their order.
    """
    results = [result for result in branch.signature.output_arg if result.type not in _OTHERS]
    if not results:
        return
    node = branch.node_def.add(name=_NAME, op="HostcallBranchResults")
    node.input.extend(branch.ret[result.name] for result in results)
    node.attr["T"].list.type.extend(result.type for result in results)
    node.attr["conditional"].s = conditional.encode()
    node.attr["key"].s = "/".join([conditional, *branches]).encode()
    node.attr["branches"].i = len(branches)
    for i, result in enumerate(results):
        branch.ret[result.name] = f"{_NAME}:outputs:{i}"
