"""Calls that are the same in every iteration of a loop.

XLA makes such a call once, before the loop, if it is one custom call without side effects. The two
that a call becomes which begins early stay in the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef


def of_body(body: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """The names of the nodes of a loop's body that compute the same each time."""
    same = {body.signature.input_arg[i].name for i in arguments(body)}
    for node in defs.program_order(body):
        values = [value for value in node.input if not value.startswith("^")]
        has_effect = defs.definition_of(node, functions).is_stateful
        if not has_effect and all(defs.source(value) in same for value in values):
            same.add(node.name)
    return same


def arguments(body: FunctionDef) -> set[int]:
    """The positions of the arguments that a loop's body returns as they are."""
    nodes = {node.name: node for node in body.node_def}

    def origin(value: str) -> str:
        name = defs.source(value)
        while name in nodes and nodes[name].op == "Identity":
            name = defs.source(nodes[name].input[0])
        return name

    signature = body.signature
    pairs = zip(signature.input_arg, signature.output_arg, strict=True)
    return {i for i, (arg, ret) in enumerate(pairs) if origin(body.ret[ret.name]) == arg.name}
