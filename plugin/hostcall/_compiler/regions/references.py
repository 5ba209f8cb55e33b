"""Which values of a program XLA cannot hold, so that it has references in their place.

Strings are such values, and what an op on the host makes or takes of variants and resources: the
handle of a table, a dataset. A reference is an int64 scalar. The real value is kept beside the
program while that runs (`csrc/tensorflow/region.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_STRING, _RESOURCE, _VARIANT = (
    dtype.as_datatype_enum for dtype in (tf.string, tf.resource, tf.variant)
)
_IDENTITIES = frozenset({"Identity", "IdentityN"})

# A value: the name of its function, and its own there.
Value = tuple[str, str]


class NotWholeError(Exception):
    """Why a function cannot be one program, even with regions."""


def is_call(node: NodeDef, functions: Mapping[str, Any]) -> bool:
    """Whether XLA compiles the functions that a node calls along with it."""
    return (
        node.op in op_kinds.LOOP_OPS | op_kinds.BRANCH_OPS | defs.CALL_OPS or node.op in functions
    )


def data_inputs(node: NodeDef) -> list[str]:
    """The inputs of a node that are values."""
    return [value for value in node.input if not value.startswith("^")]


class References:
    """The values of a program that are references in it.

    Args:
      functions: the FunctionDefs that the program reaches, by name.
      is_host_op: whether a node has to be on the host, by its NodeDef.

    Attributes:
      host_ops: for each function, the nodes that are on the host: those, and others that pass
        variants to them.

    Raises:
      NotWholeError: when a resource is used in the program and on the host.
    """

    def __init__(self, functions: Mapping[str, Any], is_host_op: Callable[[NodeDef], bool]) -> None:
        self._functions = functions
        self._parents: dict[Value, Value] = {}
        self._types = {name: defs.Types(f, functions) for name, f in functions.items()}
        self.host_ops: dict[str, set[str]] = {
            name: {node.name for node in function.node_def if is_host_op(node)}
            for name, function in functions.items()
        }
        self._dtypes: dict[Value, int] = {}
        self._users: dict[Value, list[tuple[str, NodeDef]]] = {}
        for function in functions.values():
            self._note_values(function)
        for name, function in functions.items():
            for node in function.node_def:
                self._read(name, node)
        self._found: set[Value] = set()
        self._spread()

    def holds(self, function: str, value: str) -> bool:
        """Whether a value of a function is a reference."""
        key = (function, value)
        if key not in self._dtypes:
            return False
        return self._dtypes[key] == _STRING or self._root(key) in self._found

    def _note_values(self, function: FunctionDef) -> None:
        name = function.signature.name
        for arg in function.signature.input_arg:
            self._note(name, arg.name, arg.type)
        for node in function.node_def:
            for result, types in self._types[name].of_node(node.name).items():
                for i, dtype in enumerate(types):
                    self._note(name, f"{node.name}:{result}:{i}", dtype)

    def _read(self, function: str, node: NodeDef) -> None:
        if is_call(node, self._functions):
            for one, other in self._passed(function, node):
                self._unite(one, other)
        elif node.op in _IDENTITIES and node.name not in self.host_ops[function]:
            for i, value in enumerate(data_inputs(node)):
                self._unite((function, value), (function, f"{node.name}:output:{i}"))
        elif node.op != "Const":
            for value in [*data_inputs(node), *self._results(function, node)]:
                if (function, value) in self._dtypes:
                    self._users.setdefault((function, value), []).append((function, node))

    def _note(self, function: str, value: str, dtype: int) -> None:
        if dtype in (_STRING, _RESOURCE, _VARIANT):
            self._dtypes[function, value] = dtype

    def _results(self, function: str, node: NodeDef) -> list[str]:
        types = self._types[function].of_node(node.name).items()
        return [f"{node.name}:{result}:{i}" for result, ts in types for i in range(len(ts))]

    def _passed(self, function: str, node: NodeDef) -> Iterator[tuple[Value, Value]]:
        """The values that a call passes to functions and gets back, in pairs."""
        given = [(function, value) for value in data_inputs(node)]
        if node.op in op_kinds.BRANCH_OPS:
            given = given[1:]  # the first says which branch
        got = [(function, value) for value in self._results(function, node)]
        for name in defs.called_functions(node, self._functions):
            called = self._functions[name]
            args = [(name, arg.name) for arg in called.signature.input_arg]
            rets = [(name, called.ret[result.name]) for result in called.signature.output_arg]
            yield from zip(given, args, strict=True)
            if node.op not in op_kinds.LOOP_OPS or name == node.attr["body"].func.name:
                yield from zip(rets, got, strict=True)
            if node.op in op_kinds.LOOP_OPS:
                yield from zip(args, got, strict=True)

    def _root(self, value: Value) -> Value:
        while self._parents.get(value, value) != value:
            value = self._parents[value]
        return value

    def _unite(self, one: Value, other: Value) -> None:
        if one in self._dtypes and other in self._dtypes:
            self._parents[self._root(one)] = self._root(other)

    def _spread(self) -> None:
        """Finds all values that ops on the host touch, and all ops that touch such values."""
        users: dict[Value, list[tuple[str, NodeDef]]] = {}
        for value, nodes in self._users.items():
            users.setdefault(self._root(value), []).extend(nodes)
        pending = [
            root
            for root, nodes in users.items()
            if any(node.name in self.host_ops[function] for function, node in nodes)
        ]
        while pending:
            root = pending.pop()
            if root in self._found:
                continue
            self._found.add(root)
            for function, node in users[root]:
                if node.name in self.host_ops[function]:
                    continue
                if self._dtypes[root] == _RESOURCE:
                    raise NotWholeError(
                        f"{node.name} of the program and ops on the host use one resource"
                    )
                self.host_ops[function].add(node.name)
                values = [*data_inputs(node), *self._results(function, node)]
                pending += [
                    self._root((function, v)) for v in values if (function, v) in self._dtypes
                ]
