"""How programs keep graph mode's values and errors: facts for `hostcall.explain`.

They come from the functions that write the programs, asked about the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler import ops, wrong_kernels
from hostcall._compiler.clusters.partitioner import Partitioner
from hostcall._compiler.one_program.host_regions import Region
from hostcall._compiler.semantics import checks, failures
from hostcall._ops import settings
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import function_edits, protos
from hostcall._tf.types import FunctionDefLibrary
from hostcall._tools.explain import facts
from hostcall._tools.explain.callback_facts import Bodies

# Finds the name, type and place of a node, by the names of the node and of its function.
Located = Callable[[str, str], dict[str, Any]]

# The classes of the errors that checks stand for, by their status codes.
_ERRORS: Mapping[int, type[tf.errors.OpError]] = {
    checks.INVALID_ARGUMENT: tf.errors.InvalidArgumentError,
    checks.OUT_OF_RANGE: tf.errors.OutOfRangeError,
    checks.INTERNAL: tf.errors.InternalError,
}

# What the names of the nodes that replace a node add to its name.
_ADDED = "/hostcall"


class GraphSemantics:
    """The checks and the rewritten ops of the programs for the CPU that a walk meets."""

    def __init__(self, bodies: Bodies, located: Located) -> None:
        self._bodies = bodies
        self._located = located
        self._checks: dict[facts.ValueCheck, None] = {}
        self._rewritten: dict[facts.Rewritten, None] = {}

    @property
    def checks(self) -> tuple[facts.ValueCheck, ...]:
        """The checks found so far."""
        return tuple(self._checks)

    @property
    def rewritten(self) -> tuple[facts.Rewritten, ...]:
        """The rewritten ops found so far."""
        return tuple(self._rewritten)

    def note_program(
        self, library: FunctionDefLibrary, entry: str, regions: Iterable[Region]
    ) -> None:
        """Note the checks of a function of a library that is one program with regions."""
        self._note_checks(library, entry, {}, called_nodes(regions, self._bodies))

    def note_clusters(self, partitioner: Partitioner) -> None:
        """Note the checks in the clusters of a partitioned function."""
        library = protos.function_pb2.FunctionDefLibrary(function=partitioner.library.function)
        library.function.extend(partitioner.functions.values())
        for plan in partitioner.plans:
            for cluster in plan.clusters:
                self._note_checks(library, cluster, {cluster: plan.name}, ())

    def note_rewritten(self, entry: str) -> None:
        """Note the ops that are rewritten in a function, and in all that it calls."""
        for name, function in defs.reachable_in(self._bodies.functions, entry).items():
            if not defs.nodes_of(function, ops.DIFFERENT):
                continue
            live: Any = protos.copy_of(function)
            if not defs.has_frames(live):
                function_edits.drop_dead_nodes(live, self._bodies.functions)
            nodes = {node.name: node for node in live.node_def}
            for node in defs.nodes_of(live, ops.DIFFERENT):
                if (one := wrong_kernels.difference(node, nodes)) is not None:
                    on_host = one.replacement is None or defs.has_frames(live)
                    located = self._located(node.name, name)
                    found = facts.Rewritten(difference=one.reason, on_host=on_host, **located)
                    self._rewritten[found] = None

    def _note_checks(
        self,
        library: FunctionDefLibrary,
        entry: str,
        names: Mapping[str, str],
        on_host: Collection[tuple[str, str]],
    ) -> None:
        """Note the checks in a program; `names` has the user's functions for new ones."""
        if settings.current.semantics == settings.XLA:
            return
        for name, all_of_it in failures.find_checks(library, entry).items():
            function = self._bodies.original(names.get(name, name))
            for check in all_of_it:
                node = self._original(function, check.node.name)
                if node and (function, node) not in on_host:
                    error, located = _ERRORS[check.code].__name__, self._located(node, function)
                    found = facts.ValueCheck(error=error, message=check.text, **located)
                    self._checks[found] = None

    def _original(self, function: str, node: str) -> str:
        """Return the user's node that a node is, or that it replaces a part of; "" if none."""
        known = {one.name for one in self._bodies[function].nodes}
        while node and node not in known:
            node = node.rpartition(_ADDED)[0]
        return node


def called_nodes(regions: Iterable[Region], bodies: Bodies) -> dict[tuple[str, str], None]:
    """Return the functions and names of the user's nodes that a program calls."""
    found = (
        (bodies.original(region.function), node) for region in regions for node in region.nodes
    )
    return dict.fromkeys(found)
