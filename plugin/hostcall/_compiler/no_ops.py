"""NoOps that only join control edges, taken out of functions that XLA compiles.

TensorFlow puts one behind the stateful ops of a function, for the results to wait for. XLA has no
use for it, and the constant folding before it takes an op without operands for a constant: for its
sake it runs all constants of the function, and makes them anew. In a function of 20,000 constants
that takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hostcall._tf.types import FunctionDef


def bypass(function: FunctionDef) -> None:
    """Lets whatever waits for a NoOp wait for what the NoOp waits for.

    One with several inputs and several users stays: there would be more edges without it.

    Args:
      function: a FunctionDef, changed in place.
    """
    returned = set(function.control_ret.values())
    found = [(i, node) for i, node in enumerate(function.node_def) if node.op == "NoOp"]
    no_ops = {f"^{node.name}": node for _, node in found if node.name not in returned}
    if not no_ops:
        return
    users = _users(function, no_ops)
    bypassed = set()
    for control, node in no_ops.items():
        if len(node.input) > 1 and len(users[control]) > 1:
            continue
        for user in users[control]:
            others = [value for value in user.input if value != control]
            user.input[:] = [*others, *(value for value in node.input if value not in others)]
        for before in filter(users.__contains__, node.input):
            users[before] = [user for user in users[before] if user is not node] + users[control]
        bypassed.add(node.name)
    for position, node in reversed(found):
        if node.name in bypassed:
            del function.node_def[position]


def _users(function: FunctionDef, controls: Iterable[str]) -> dict[str, list[Any]]:
    """The nodes that wait for each of some control inputs."""
    users: dict[str, list[Any]] = {control: [] for control in controls}
    for node in function.node_def:
        inputs = node.input
        if not inputs or inputs[-1][0] != "^":  # control inputs come last
            continue
        for value in inputs:
            if value in users:
                users[value].append(node)
    return users
