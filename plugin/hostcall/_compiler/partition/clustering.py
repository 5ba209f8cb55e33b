"""Clusters: nodes that compile together, and that programs share.

The nodes of a partitioned function are *host* nodes or nodes that XLA can compile. Time runs in
steps: the nodes of an even step are compiled as one cluster, those of an odd step run on the host,
one by one. Each node takes the first step after all nodes that it waits for. So independent chains
share their clusters. There are as many clusters as on the path with the most changes between host
and compiled code.

TensorFlow keeps compiled programs by the name of the function. A function that is traced again, by
a new `tf.function` of it say, has clusters that differ only in their names. So `share` makes the
names from the contents. The contents include the names of the nodes, so messages and profiles stay
those of each program.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence

import tensorflow as tf

from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDef, NodeDef

# How often groups may push each other to later steps before they are put on the host.
_ROUNDS = 8


class Place(enum.Enum):
    """The place where a node may run."""

    HOST = enum.auto()
    COMPILED = enum.auto()
    # Wherever its predecessors run: identities and the like.
    EITHER = enum.auto()


def first_steps(
    places: Sequence[Place], predecessors: Sequence[Sequence[int]], floors: Sequence[int]
) -> list[int]:
    """Return the step of each node: even in a cluster, odd on the host.

    Args:
      places: the place of each node.
      predecessors: for each node, the nodes that it waits for, all of them before it.
      floors: for each node, the step before which it must not run.
    """
    steps: list[int] = []
    for place, before, floor in zip(places, predecessors, floors, strict=True):
        step = max((steps[i] for i in before), default=1)
        step = max(step, floor)
        if (place is Place.HOST and step % 2 == 0) or (place is Place.COMPILED and step % 2 == 1):
            step += 1
        steps.append(step)
    return steps


def sink(
    places: Sequence[Place],
    predecessors: Sequence[Sequence[int]],
    steps: Sequence[int],
    fixed: Sequence[int],
) -> list[int]:
    """Move each node that nothing in its own cluster feeds to the cluster of its first user.

    A value that is made of arguments or host values, and is used later, then need not pass from
    cluster to cluster.

    Args:
      places: the place of each node.
      predecessors: for each node, the nodes that it waits for, all of them before it.
      steps: the step of each node, from `assign`.
      fixed: nodes that stay where they are.
    """
    may_move = [place is Place.COMPILED for place in places]
    for i in fixed:
        may_move[i] = False
    for _ in range(_ROUNDS):
        moved = _latest(predecessors, steps, may_move)
        settled = True
        for i, before in enumerate(predecessors):
            if moved[i] > steps[i] and any(moved[j] == steps[i] for j in before):
                may_move[i] = settled = False
        if settled:
            return moved
    return list(steps)


def _latest(
    predecessors: Sequence[Sequence[int]], steps: Sequence[int], may_move: Sequence[bool]
) -> list[int]:
    """Return the last cluster that each node may be in, which is its own for those that stay."""
    end = max(steps, default=0) + 2
    latest = [end if may else step for may, step in zip(may_move, steps, strict=True)]
    for i in reversed(range(len(steps))):
        if latest[i] == end:
            latest[i] = steps[i]  # unused
        # The last cluster before a host op has the preceding step.
        bound = latest[i] - latest[i] % 2
        for j in predecessors[i]:
            if may_move[j]:
                latest[j] = min(latest[j], bound)
    return latest


def assign(
    places: Sequence[Place],
    predecessors: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
    floors: Sequence[int] = (),
) -> list[int]:
    """Return the step of each node, with the nodes of each group together.

    Args:
      places: the place of each node.
      predecessors: for each node, the nodes that it waits for, all of them before it.
      groups: nodes that pass each other values which cannot leave a compiled program. Each group is
        in one cluster, or all of it on the host.
      floors: for each node, the step before which it must not run; empty without limits.
    """
    places = list(places)
    given = floors or [0] * len(places)
    floors = list(given)
    for group in groups:
        _keep_together(places, group, on_host=any(places[i] is Place.HOST for i in group))
    for _ in range(_ROUNDS):
        steps = first_steps(places, predecessors, floors)
        torn = [
            group for group in groups if len({steps[i] for i in group if _inside(places, i)}) > 1
        ]
        if not torn:
            return steps
        for group in torn:
            latest = max(steps[i] for i in group)
            for i in group:
                floors[i] = latest
    # A path leads out of each torn group and back into it through the host.
    for group in torn:
        _keep_together(places, group, on_host=True)
    return assign(places, predecessors, groups, given)


def _inside(places: Sequence[Place], i: int) -> bool:
    return places[i] is not Place.HOST


def _keep_together(places: list[Place], group: Sequence[int], on_host: bool) -> None:
    for i in group:
        places[i] = Place.HOST if on_host else Place.COMPILED


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
        copy = protos.function_pb2.FunctionDef()
        copy.CopyFrom(function)
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
