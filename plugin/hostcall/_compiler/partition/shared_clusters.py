"""Clusters that programs share: their names are made from their contents.

TensorFlow keeps compiled programs by the name of the function. A function that is traced again, by
a new `tf.function` of it say, has clusters that differ only in their names. So `share` makes the
names from the contents. The contents include the names of the nodes, so messages and profiles stay
those of each program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import tensorflow as tf

from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

_RESOURCE = tf.resource.as_datatype_enum

_DIGITS = 32  # of a digest


def share(functions: dict[str, FunctionDef], others: Mapping[str, FunctionDef]) -> None:
    """Rename clusters that may be shared, and the functions that they call, by their contents.

    Args:
      functions: the functions of a finished partitioning, by name. Changed in place.
      others: other functions that they may call. They stay as they are: clusters call copies.
    """
    shared = _Shared({**others, **functions})
    clusters = [name for name, each in functions.items() if attributes.CLUSTER in each.attr]
    renamed = {name: shared.name_of(name) for name in clusters if shared.may_be(name)}
    for name in renamed:
        del functions[name]
    for function in functions.values():
        for node in function.node_def:
            for callee in defs.callees(node):
                if callee.name in renamed:
                    node.attr[attributes.CLUSTER_NAME].s = callee.name.encode()
                    callee.name = renamed[callee.name]
    functions.update(shared.functions)


class _Shared:
    """Functions under names made from their contents.

    Attributes:
      functions: the functions, by these names.
    """

    def __init__(self, functions: Mapping[str, FunctionDef]):
        self.functions: dict[str, FunctionDef] = {}
        self._all = functions
        self._may_be_shared: dict[str, bool] = {}
        self._names: dict[str, str] = {}

    def may_be(self, name: str) -> bool:
        """Return whether a function, with all that it calls, need not belong to one program."""
        if name not in self._may_be_shared:
            self._may_be_shared[name] = False  # XLA compiles no recursion
            function = self._all.get(name)
            self._may_be_shared[name] = function is not None and all(
                node.op not in self._all
                and not _has_state(node)
                and all(self.may_be(callee.name) for callee in defs.callees(node))
                for node in function.node_def
            )
        return self._may_be_shared[name]

    def name_of(self, name: str) -> str:
        """Return the new name of a function that may be shared."""
        if name not in self._names:
            self._names[name] = self._add(self._all[name])
        return self._names[name]

    def _add(self, function: FunctionDef) -> str:
        copy: FunctionDef = protos.copy_of(function)
        _number_arguments(copy)
        for node in copy.node_def:
            for callee in defs.callees(node):
                callee.name = self.name_of(callee.name)
        copy.signature.name = ""
        digest = hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()
        name = f"{defs.without_number(function.signature.name)}_{digest[:_DIGITS]}"
        copy.signature.name = name
        self.functions[name] = copy
        return name


def _number_arguments(function: FunctionDef) -> None:
    """Name the arguments as those of clusters, since TensorFlow's names may hold numbers."""
    new = {a.name: f"hostcall_arg_{i}" for i, a in enumerate(function.signature.input_arg)}
    for argument in function.signature.input_arg:
        argument.name = new[argument.name]
    for node in function.node_def:
        node.input[:] = [_renamed(value, new) for value in node.input]
    for result, value in list(function.ret.items()):
        function.ret[result] = _renamed(value, new)


def _renamed(value: str, new: Mapping[str, str]) -> str:
    name = defs.source(value)
    return value.replace(name, new[name], 1) if name in new else value


def _has_state(node: NodeDef) -> bool:
    """Return whether a run of a node depends on other runs, or on the program around it.

    A resource keeps its own state, so it does not count. A call has the state of the function,
    which is checked as well. A callback counts, since it lives as long as its program.
    """
    definition = op_kinds.op_def_or_none(node.op)
    if definition is None or op_kinds.calls_python(node):
        return True
    if not definition.is_stateful or node.op in op_kinds.CHECKS or defs.callees(node):
        return False
    return not defs.handles(node, _RESOURCE, {})
