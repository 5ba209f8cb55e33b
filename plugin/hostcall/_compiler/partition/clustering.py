"""Clusters: which nodes compile together, and which programs share them.

The nodes of a function that is partitioned fall into *host* nodes and nodes that XLA can compile.
Time runs in steps: the nodes of an even step are compiled as one cluster, those of an odd step run
on the host, one by one. Each node takes the first step that comes after all that it waits for. So
independent chains share their clusters, and there are as many clusters as the path with the most
changes between host and compiled code has.

TensorFlow keeps what it compiles by the name of the function. A function that is traced again, as
by a new `tf.function` of it, has clusters that are the same but for their names. So functions get
names that are made of what they do, down to the names of their nodes: messages and profiles stay
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

# How often the groups below may push each other on before they are run on the host.
_ROUNDS = 8


class Place(enum.Enum):
    """Where a node may run."""

    HOST = enum.auto()
    COMPILED = enum.auto()
    # Wherever what it waits for has run: identities and the like.
    EITHER = enum.auto()


def first_steps(
    places: Sequence[Place], predecessors: Sequence[Sequence[int]], floors: Sequence[int]
) -> list[int]:
    """The step of each node: even in a cluster, odd on the host.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      floors: of each node, the step before which it must not run.
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
    """Steps where each node that nothing in its own cluster feeds has moved to its first user's.

    A value that is made of arguments, or of values that exist on the host, and is used later need
    not be carried from cluster to cluster.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      steps: of each node, from `assign`.
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
    """The last cluster that each node may be in, which for those that stay is their own."""
    end = max(steps, default=0) + 2
    latest = [end if may else step for may, step in zip(may_move, steps, strict=True)]
    for i in reversed(range(len(steps))):
        if latest[i] == end:
            latest[i] = steps[i]  # nobody uses it
        # The last cluster before a host op has the step before that.
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
    """The step of each node, the nodes of each group together.

    Args:
      places: of each node.
      predecessors: of each node, the nodes that it waits for, all of them before it.
      groups: nodes that pass each other values which cannot leave a compiled program. They are in
        one cluster, or all of them on the host.
      floors: of each node, the step before which it must not run; none if there are none.
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
    # A path leads out of a group and back into it by way of the host.
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
    """Gives clusters that may be shared, and what they call, the names of what they do.

    Args:
      functions: those of a partitioning, by name, which do not change any more. Changed in place.
      others: those that they may call besides. They stay as they are: clusters call copies.
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
    """Functions under the names of what they do.

    Attributes:
      functions: those that have such names, by them.
    """

    def __init__(self, functions: Mapping[str, FunctionDef]):
        self.functions: dict[str, FunctionDef] = {}
        self._all = functions
        self._may_be_shared: dict[str, bool] = {}
        self._names: dict[str, str] = {}

    def may_be(self, name: str) -> bool:
        """Whether a function, and all that it calls, need not stay that of one program."""
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
        """The new name of a function that may be shared."""
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
    """Names the arguments as those of clusters are: TensorFlow's names of some hold numbers."""
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
    """Whether one run of a node depends on others, or on the program that it is part of.

    The state of a resource is its own. A call has that of the function, which is looked at as well.
    A callback lives as long as its program.
    """
    definition = op_kinds.op_def_or_none(node.op)
    if definition is None or op_kinds.calls_python(node):
        return True
    if not definition.is_stateful or node.op in op_kinds.CHECKS or defs.callees(node):
        return False
    return not defs.handles(node, _RESOURCE, {})
