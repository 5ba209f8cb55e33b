"""The split way: a function becomes compiled clusters with host nodes between them.

A *host node* is one that cannot be compiled, or shall not: a script op whose results have no known
shape, say, and the ops that work on strings. A loop, branch or call that holds one inside is a host
node itself, and what it calls is split in turn. All the other nodes are put into clusters
(`_clusters.py`), each of them a function that TensorFlow must compile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from hostcall import _function_defs as defs
from hostcall import _tf_private as private
from hostcall._clusters import Place
from hostcall._partition import partition
from hostcall._routing import Choice

_STRING = tf.string.as_datatype_enum
_MUST_COMPILE = "_XlaMustCompile"

# The eager context adds this to functions that lack it, and then takes them for other ones.
_CONTEXT = "_construction_context"

# On a cluster's function: it is compiled as it is.
CLUSTER_ATTR = "_hostcall_cluster"

_EITHER_OPS = frozenset({"NoOp", "Identity", "IdentityN"})
# The loops and branches of TensorFlow 1, whose nodes only work together.
_FRAME_OPS = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes that are compiled together: the name of their function, and theirs."""

    name: str
    nodes: list[str]


@dataclasses.dataclass(frozen=True)
class SplitFunction:
    """What has become of one function.

    Attributes:
      name: of the function as it was.
      new_name: of the one that takes its place.
      host_nodes: the nodes that stay on the host, with the reason for each.
      clusters: the others.
    """

    name: str
    new_name: str
    host_nodes: dict[str, str]
    clusters: list[Cluster]


class Splitter:
    """Splits a function and all that it reaches.

    Args:
      library: the FunctionDefLibrary that holds them.
      choose: the route of a script op, by its NodeDef.
      has_kernel: whether XLA can compile an op, by its NodeDef.
      marked: whether a node shall be on the host whatever it is, by its NodeDef.

    Attributes:
      functions: the new ones, by name.
      plans: what has become of each function.
    """

    def __init__(
        self,
        library: Any,
        choose: Callable[[Any], Choice],
        has_kernel: Callable[[Any], bool],
        marked: Callable[[Any], bool],
    ) -> None:
        self._old: Mapping[str, Any] = {f.signature.name: f for f in library.function}
        self._choose = choose
        self._has_kernel = has_kernel
        self._marked = marked
        self._must: dict[str, bool] = {}
        self._effects: dict[str, bool] = {}
        self._cannot: dict[str, str] = {}
        self._split: dict[str, str] = {}
        self._entry = ""
        self.functions: dict[str, Any] = {}
        self.plans: list[SplitFunction] = []

    def is_cluster(self, name: str) -> bool:
        """Whether a function has come out of a splitting."""
        return CLUSTER_ATTR in self._old[name].attr

    def must_split(self, name: str) -> bool:
        """Whether a function reaches a node that shall be on the host."""
        if name not in self._must:
            self._must[name] = False  # what a function that calls itself finds
            function = self._old.get(name)
            self._must[name] = function is not None and any(
                self._node_must(node) for node in function.node_def
            )
        return self._must[name]

    def _node_must(self, node: Any) -> bool:
        if node.op in private.SCRIPT_OPS:
            return self._choose(node).route == "split"
        if self._marked(node):
            return True
        return any(self.must_split(name) for name in defs.called_functions(node, self._old))

    def split(self, name: str) -> str:
        """Splits a function; returns the name of the one that takes its place."""
        if name in self._split:
            return self._split[name]
        self._entry = self._entry or name
        number = f"_{len(self._split)}_{name}" if self._split else ""
        new_name = self._split[name] = f"{self._entry}__split{number}"
        function = self._in_order(self._old[name])
        reasons = self._host_reasons(function)
        places = {node.name: self._place(node, reasons) for node in function.node_def}
        host, clusters = partition(function, new_name, places, self._old)
        for node in host.node_def:
            if node.name in reasons:
                self._split_callees(node)
        host.attr.pop(_MUST_COMPILE, None)
        host.attr[_CONTEXT].s = host.attr[_CONTEXT].s or b"kEagerRuntime"
        self.functions[new_name] = host
        for cluster in clusters:
            cluster.attr[_CONTEXT].CopyFrom(host.attr[_CONTEXT])
            cluster.attr[_MUST_COMPILE].b = True
            cluster.attr[CLUSTER_ATTR].b = True
            self.functions[cluster.signature.name] = cluster
        named = [Cluster(c.signature.name, [n.name for n in c.node_def]) for c in clusters]
        self.plans.append(SplitFunction(name, new_name, reasons, named))
        return new_name

    def _in_order(self, old: Any) -> Any:
        """A copy of a function, with control edges from each side effect in Python to the next."""
        function = private.function_pb2.FunctionDef()
        function.CopyFrom(old)
        previous = None
        for node in defs.program_order(function):
            if not self._has_effect(node):
                continue
            if previous is not None and f"^{previous.name}" not in node.input:
                node.input.append(f"^{previous.name}")
            previous = node
        if previous is not None and previous.name not in function.control_ret.values():
            function.control_ret[previous.name] = previous.name
            function.signature.control_output.append(previous.name)
        return function

    def _has_effect(self, node: Any) -> bool:
        if node.op in private.SCRIPT_OPS:
            return node.op in private.STATEFUL_SCRIPT_OPS
        called = defs.called_functions(node, self._old)
        return any(self._function_has_effect(name) for name in called)

    def _function_has_effect(self, name: str) -> bool:
        if name not in self._effects:
            self._effects[name] = False  # what a function that calls itself finds
            function = self._old.get(name)
            self._effects[name] = function is not None and any(
                map(self._has_effect, function.node_def)
            )
        return self._effects[name]

    def _split_callees(self, node: Any) -> None:
        node.attr.pop(_MUST_COMPILE, None)
        for callee in defs.callees(node):
            if callee.name in self._old:
                callee.attr.pop(_MUST_COMPILE, None)
                callee.name = self.split(callee.name)
        if node.op in self._old:
            node.op = self.split(node.op)

    def _place(self, node: Any, reasons: Mapping[str, str]) -> Place:
        if node.name in reasons:
            return Place.HOST
        return Place.EITHER if node.op in _EITHER_OPS else Place.COMPILED

    def _host_reasons(self, function: Any) -> dict[str, str]:
        """The nodes that have to be on the host, each with the reason."""
        if any(node.op in _FRAME_OPS for node in function.node_def):
            reason = "TensorFlow 1's loops and branches are not split"
            return {node.name: reason for node in function.node_def}
        types = defs.Types(function, self._old)
        reasons = {}
        for node in function.node_def:
            reason = self._host_reason(node, types)
            if reason:
                reasons[node.name] = reason
        return reasons

    def _host_reason(self, node: Any, types: defs.Types | None) -> str:
        if node.op in private.SCRIPT_OPS:
            choice = self._choose(node)
            return choice.reason if choice.route == "split" else ""
        if self._marked(node):
            return "route='split' was asked for, and it has no XLA kernel"
        called = defs.called_functions(node, self._old)
        for name in called:
            if self.must_split(name):
                return f"it calls {name}, which is split"
            if why := self._why_not_compiled(name):
                return why
        if node.op not in self._old and not self._has_kernel(node):
            return f"{node.op} has no XLA kernel for its types"
        if types is not None and any(_is_string(t) for t in _types_of(node, types)):
            return "it works on strings"
        return ""

    def _why_not_compiled(self, name: str) -> str:
        """Why XLA cannot compile a function that holds no script op for the host, if it cannot."""
        if name not in self._cannot:
            self._cannot[name] = ""
            function = self._old.get(name)
            for node in function.node_def if function is not None else ():
                if reason := self._host_reason(node, None):
                    self._cannot[name] = f"in {name}: {reason}"
                    break
        return self._cannot[name]


def _types_of(node: Any, types: defs.Types) -> list[int]:
    results = [t for result in types.of_node(node.name).values() for t in result]
    return results + [types.of(value) for value in node.input if not value.startswith("^")]


def _is_string(dtype: int) -> bool:
    return bool(dtype == _STRING)
