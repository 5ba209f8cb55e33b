"""Loops and branches whose calls XLA does not keep in order, before TensorFlow 2.20.

XLA there has a loop or a branch wait for the values that it takes, and not for tokens. So one that
calls Python may begin before the calls in front of it have ended, and calls behind it before it has
ended. Where a unit (see `ordering.py`) holds such a loop or branch beside other calls with side
effects, it is a host op, between whose clusters TensorFlow keeps the order.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from hostcall import _versions
from hostcall._compiler.effects import Effects
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef


def marked(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary:
    """A library whose loops and branches say that XLA would not keep the order of their calls.

    Args:
      library: a FunctionDefLibrary with all that the function reaches.
      entry: the name of the function.

    Returns:
      A copy where there are such loops or branches, else the same.
    """
    if is_kept(library, entry):
        return library
    copy: FunctionDefLibrary = protos.copy_of(library)
    for node in Units(copy).losing(entry):
        node.attr[attributes.LOSES_ORDER].b = True
    return copy


def is_kept(library: FunctionDefLibrary, entry: str) -> bool:
    """Whether XLA keeps the order of all calls of a function that becomes one program.

    Args:
      library: a FunctionDefLibrary with all that it reaches.
      entry: its name.
    """
    return _versions.keeps_order(tf.__version__) or not any(Units(library).losing(entry))


class Units:
    """The units of a function, and what has side effects in each.

    Args:
      library: a FunctionDefLibrary with all that the function reaches.
    """

    def __init__(self, library: FunctionDefLibrary) -> None:
        self._functions: dict[str, FunctionDef] = {f.signature.name: f for f in library.function}
        self._effects = Effects(self._functions)

    def losing(self, entry: str) -> Iterator[NodeDef]:
        """The loops and branches whose calls may change places with others of their unit."""
        pending, seen = [entry], {entry}
        while pending:
            effects = [*self._unit(pending.pop(), frozenset())]
            flow = [node for node in effects if node.op in defs.CONTROL_FLOW_OPS]
            if len(effects) > 1 or any(map(self._condition_has_effect, flow)):
                yield from flow
            for node in flow:
                called = defs.called_functions(node, self._functions)
                pending.extend(name for name in dict.fromkeys(called) if name not in seen)
                seen.update(called)

    def _unit(self, name: str, inside: frozenset[str]) -> Iterator[NodeDef]:
        """What has side effects in a unit, with what plain calls inline into it."""
        if name in inside or name not in self._functions:
            return
        for node in self._functions[name].node_def:
            if op_kinds.is_ordered(node):
                yield node
            elif self._effects.of_callees(node):
                if node.op in defs.CONTROL_FLOW_OPS:
                    yield node
                    continue
                for callee in defs.called_functions(node, self._functions):
                    yield from self._unit(callee, inside | {name})

    def _condition_has_effect(self, node: NodeDef) -> bool:
        """Whether a loop's condition does: it is computed before the loop, too."""
        return "cond" in node.attr and self._effects.of_function(node.attr["cond"].func.name)
