"""`hostcall.rewrite`: graph partitioning as a pass over graphs, for the user's own pipelines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf

from hostcall._compiler import passes, plan, route_selection
from hostcall._compiler.clusters import host_calls
from hostcall._compiler.plan import Clusters
from hostcall._ops import lookup, requested_routes
from hostcall._tf import concrete_functions, types
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs

_CANNOT = """\
hostcall.rewrite: route="custom_call" keeps compiled functions whole, and these calls of Python \
cannot be in one:

{ops}

Declare the shapes of their results (hostcall.declare(function, result=...)), do in Python what XLA
gets wrong for sizes that are only bounded, or use route="auto", \
which partitions the functions around them."""


@plan.limited
def rewrite(
    target: types.GraphDef | types.ConcreteFunction, route: str = requested_routes.AUTO
) -> Any:
    """Partition functions now, rather than when TensorFlow creates their kernels.

    Each must-compile function that has to be partitioned becomes a function that runs on the host
    and calls must-compile clusters. Nothing else changes, and `target` itself stays as it is.

    Args:
      target: a `ConcreteFunction` or a `GraphDef`.
      route: "auto" partitions a function only if necessary, and follows the routes that ops were
        traced with. "partition" partitions each function around its script ops and the ops without
        XLA kernels. "custom_call" partitions nothing, and raises an error for a function that
        cannot be compiled whole.

    Returns:
      A `ConcreteFunction` with the same signature that shares the variables of `target` (`target`
      itself if nothing changes), or a `GraphDef`, in which the functions keep their names. Running
      the result needs hostcall, as running `target` does.

    Raises:
      TypeError: when `target` is neither.
      ValueError: for an unknown route, and for "custom_call" when an op cannot be compiled.

    Examples:
      >>> @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([4], tf.float32)])
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.unique, [x], tf.float32)
      >>> rewritten = hostcall.rewrite(program.get_concrete_function())
      >>> rewritten(tf.constant([1.0, 3.0, 3.0, 1.0])).numpy()
      array([2., 6.], dtype=float32)
    """
    requested_routes.checked(route)
    if isinstance(target, tf.compat.v1.GraphDef):
        rewritten = protos.copy_of(target)
        function_edits.drop_programs(rewritten.library)
        _GraphRewriter(rewritten.library, route).run(rewritten.node)
        return rewritten
    if isinstance(target, concrete_functions.ConcreteFunction):
        return _rewrite_function(target, route)
    raise TypeError(
        "hostcall.rewrite takes a ConcreteFunction or a GraphDef. Of a tf.function, take "
        f"function.get_concrete_function(...). This is {target!r}."
    )


def partition_pass(route: str = requested_routes.AUTO) -> Callable[[Any], Any]:
    """Return `hostcall.rewrite` as a pass for a pipeline: from a GraphDef to a GraphDef.

    Args:
      route: as for `hostcall.rewrite`.

    Returns:
      A function. Its `__name__` is "hostcall_partition", plus the route unless that is "auto".

    Raises:
      ValueError: for an unknown route.

    Examples:
      >>> @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([4], tf.float32)])
      ... def program(x):
      ...     y = tf.numpy_function(np.unique, [x], tf.float32)
      ...     return tf.exp(-y) * tf.tanh(y)
      >>> spec = tf.TensorSpec([4], tf.float32)
      >>> caller = tf.function(lambda x: program(x)).get_concrete_function(spec)
      >>> graph_def = caller.graph.as_graph_def()
      >>> graph_pass = hostcall.partition_pass()
      >>> graph_pass.__name__
      'hostcall_partition'
      >>> rewritten = graph_pass(graph_def)
      >>> any("__cluster_" in f.signature.name for f in rewritten.library.function)
      True
    """
    requested_routes.checked(route)

    def run(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        return rewrite(graph_def, route)

    suffix = "" if route == requested_routes.AUTO else f"_{route}"
    run.__name__ = run.__qualname__ = f"hostcall_partition{suffix}"
    return run


def _rewrite_function(concrete: types.ConcreteFunction, route: str) -> types.ConcreteFunction:
    library = concrete.graph.as_graph_def().library
    library.function.add().CopyFrom(concrete.function_def)
    before = library.SerializeToString(deterministic=True)
    _GraphRewriter(library, route).run(())
    if library.SerializeToString(deterministic=True) == before:
        return concrete
    return concrete_functions.like(concrete, library)


class _GraphRewriter:
    """A rewrite of a library of functions, in place."""

    def __init__(self, library: types.FunctionDefLibrary, route: str) -> None:
        self._library = library
        self._route = route
        self._functions = defs.by_name(library)

    def run(self, nodes: Iterable[Any]) -> None:
        """Rewrite the functions, and the calls of them in the functions and in `nodes`."""
        entries = [name for name, function in self._functions.items() if defs.is_compiled(function)]
        outside = [f.node_def for f in self._functions.values() if not defs.is_compiled(f)]
        calls = [n for n in itertools.chain(nodes, *outside) if defs.is_compiled(n)]
        # Functions that are compiled because a call of them is, not by themselves.
        called = {name for n in calls for name in defs.called_functions(n, self._functions)}
        starts = [*entries, *sorted(called & self._functions.keys() - set(entries))]
        reached = {n: None for name in starts for n in defs.reachable_in(self._functions, name)}
        if self._route == requested_routes.CUSTOM_CALL:
            self._keep_whole(reached, starts)
            return
        library = defs.with_defaults(self._library)
        if self._route == requested_routes.PARTITION:
            self._mark(library, reached)
        new_names = {}
        for name in starts:
            match plan.predict(library, name):
                case Clusters(partitioner):
                    new_names[name] = partitioner.partition(name)
                    replaced = name if name in entries else ""
                    self._add(partitioner.functions, new_names[name], replaced)
        for node in calls:
            self._redirect(node, new_names, set(entries))

    def _keep_whole(self, names: Iterable[str], entries: list[str]) -> None:
        """Mark ops that would otherwise be partitioned as custom calls; or raise a ValueError."""
        # `entries` are the compiled functions that compilation starts with.
        impossible = []
        for node in (node for name in names for node in self._functions[name].node_def):
            if node.op in op_kinds.SCRIPT_OPS:
                unmarked = protos.copy_of(node)
                unmarked.attr.pop(attributes.ROUTE, None)
                choice = route_selection.choose(unmarked)
                if choice.route == requested_routes.PARTITION:
                    impossible.append(f"    {_described(node)}: {choice.reason}")
                elif requested_routes.asked(node) == requested_routes.PARTITION:
                    node.attr[attributes.ROUTE].s = requested_routes.CUSTOM_CALL.encode()
            else:
                node.attr.pop(attributes.ROUTE, None)
        library = defs.with_defaults(self._library)
        for blocked in (passes.find_blockers(library, entry) for entry in entries):
            for (function, name), reason in blocked.items():
                node = next(n for n in self._functions[function].node_def if n.name == name)
                impossible.append(f"    {_described(node)}: {reason}")
        if impossible:
            raise ValueError(_CANNOT.format(ops="\n".join(impossible)))

    def _mark(self, library: types.FunctionDefLibrary, names: Collection[str]) -> None:
        """Mark functions for partitioning around script ops and ops without XLA kernels."""
        nodes = (n for f in library.function if f.signature.name in names for n in f.node_def)
        for node in nodes:
            compiles = node.op in self._functions or op_kinds.has_xla_kernel(node)
            if node.op in op_kinds.SCRIPT_OPS or not compiles:
                node.attr[attributes.ROUTE].s = requested_routes.PARTITION.encode()

    def _add(self, functions: Mapping[str, Any], new_name: str, name: str) -> None:
        """Add the parts of a function; the part `new_name` replaces the function `name`, if any."""
        for function in functions.values():
            # The tokens stay: others lead to entries that die with the functions of this process.
            if attributes.CLUSTER not in function.attr:
                host_calls.make_stateful(function)
            # TensorFlow refuses to load functions with an attribute that it does not know.
            function.attr.pop(attributes.CLUSTER, None)
            function_edits.name_control_outputs(function)
            if name and function.signature.name == new_name:
                self._functions[name].CopyFrom(function)
                self._functions[name].signature.name = name
            else:
                self._library.function.add().CopyFrom(function)

    def _redirect(
        self, node: types.NodeDef, new_names: Mapping[str, str], replaced: set[str]
    ) -> None:
        """Turn a compiled call into a plain call of the partitioned function."""
        if new_names.keys().isdisjoint(defs.called_functions(node, self._functions)):
            return
        node.attr.pop(defs.MUST_COMPILE, None)
        for callee in defs.callees(node):
            if callee.name in new_names:
                callee.attr.pop(defs.MUST_COMPILE, None)
                callee.name = callee.name if callee.name in replaced else new_names[callee.name]
        if node.op in new_names and node.op not in replaced:
            node.op = new_names[node.op]


def _described(node: types.NodeDef) -> str:
    """Return a description of an op, in the user's words if this process has its function."""
    spec = lookup.own_spec_of(node)
    known = f", {spec.description}" if spec is not None else ""
    return f"op {node.name!r} ({node.op}){known}"
