"""What takes the place of a function when TensorFlow creates its kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hostcall._callbacks import advice, lookup, requested_routes
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._compiler import nesting_depth, ordering, route_selection
from hostcall._compiler.bounded import analysis, returned_sizes
from hostcall._compiler.partition import host_calls, rendezvous, sequential_execution
from hostcall._compiler.partition.partitioner import SUFFIX, Partitioner
from hostcall._tf import attributes, concrete_functions, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary, NodeDef
from hostcall_runtime import _library

_log = logging.getLogger("hostcall")
_told: set[str] = set()

_WANTS_SHAPE = (
    "hostcall: %s partitions the compiled function around it, because nothing tells the shape of "
    "result %d when XLA compiles; %s. To keep one program, %s. To say that partitioning is fine: %s"
)
_IS_BOUNDED = (
    "hostcall: %s partitions the compiled function around it: %s. What comes after it is compiled "
    "anew for each size. To keep one program, do without that op, or do its work in the callback. "
    "To say that partitioning is fine: %s"
)

# On a backward function: the name of the function whose gradient it is.
_FORWARD = "forward_function_name"


class RewrittenFunction(NamedTuple):
    """What takes the place of a must-compile function. C++ reads the fields by these names.

    Attributes:
      library: a serialized FunctionDefLibrary with the new functions.
      name: of the one that takes the place of the function, which is the function itself where
        nothing is to be done.
      partitioned: whether it runs on the host, with compiled clusters in it.
    """

    library: bytes
    name: str
    partitioned: bool


@nesting_depth.limited
def rewrite_for_kernel(serialized: bytes, entry: str, device: str = "") -> RewrittenFunction:
    """Called when TensorFlow creates the kernel of a must-compile function.

    Args:
      serialized: a FunctionDefLibrary with the function and all that it reaches.
      entry: the name of the function.
      device: the only one on which parts of the function may run; "" if there may be several.

    Returns:
      What takes its place. The same input gives the same output, names included.
    """
    library = protos.function_pb2.FunctionDefLibrary.FromString(serialized)
    on_device = bool(device) and sequential_execution.all_are_for(device, library.function)
    partitioner = partitioner_for(library, entry, SUFFIX if on_device else f"{SUFFIX}_anywhere")
    library = partitioner.library
    for node in _script_ops(library):
        route_selection.check_forced(node)
    partitioned = not partitioner.is_cluster(entry) and partitioner.must_partition(entry)
    if partitioned:
        _tell(library)
        name = partitioner.partition(entry)
        host_calls.redirect(partitioner.functions.values())
        rendezvous.bring_rendezvous(partitioner.functions)
        if on_device:
            sequential_execution.run_in_sequence(partitioner.functions.values())
        new = protos.function_pb2.FunctionDefLibrary(function=partitioner.functions.values())
    elif _calls_python(library):
        returned_sizes.keep_apart(library, entry)
        new, name = ordering.order_side_effects(library, entry)
        _mark_shared_memory(library, next(f for f in new.function if f.signature.name == name))
    else:
        return RewrittenFunction(b"", entry, partitioned=False)
    # Otherwise the kernel creator adds them, and they would outlive the function.
    concrete_functions.own_functions(entry, list(new.function))
    return RewrittenFunction(new.SerializeToString(), name, partitioned)


def partitioner_for(library: FunctionDefLibrary, entry: str, suffix: str = SUFFIX) -> Partitioner:
    """The partitioner that decides what becomes of the must-compile function `entry`."""
    if not any(
        f.signature.name == entry and attributes.CLUSTER in f.attr for f in library.function
    ):
        library = analysis.marked(library, entry)
    forward = _forward_library(library, entry)
    if forward is None:
        return _new_partitioner(library, suffix)
    # Nothing marks the ops of a gradient: TensorFlow makes them when it is asked for, elsewhere.
    nodes = (node for function in forward.function for node in function.node_def)
    everything = any(requested_routes.asked(node) == requested_routes.PARTITION for node in nodes)
    name = forward.function[0].signature.name
    gradient = partitioner_for(forward, name).must_partition(name)
    return _new_partitioner(library, suffix, everything, gradient)


def _new_partitioner(
    library: FunctionDefLibrary, suffix: str, everything: bool = False, gradient: bool = False
) -> Partitioner:
    """A partitioner that goes by what this process knows and what the user has asked for.

    Args:
      library: a FunctionDefLibrary.
      suffix: of the names of new functions.
      everything: whether every op without an XLA kernel is a reason to partition.
      gradient: whether the function is the gradient of one that is partitioned.
    """
    bindings = _library.load("hostcall._tensorflow")

    def has_kernel(node: NodeDef) -> bool:
        return op_kinds.has_xla_kernel(bindings, node)

    def is_marked(node: NodeDef) -> bool:
        return requested_routes.asked(node) == requested_routes.PARTITION

    marked: Callable[[Any], bool] = is_marked
    if everything:
        names = {function.signature.name for function in library.function}
        marked = lambda node: is_marked(node) or not (node.op in names or has_kernel(node))  # noqa: E731
    return Partitioner(library, route_selection.choose, has_kernel, marked, gradient, suffix)


def _mark_shared_memory(library: FunctionDefLibrary, entry: Any) -> None:
    entries = map(lookup.entry_of, _script_ops(library))
    entry.attr[attributes.SHARES_MEMORY].b = any(
        isinstance(e, CallbackSpec) and e.shares_memory for e in entries
    )


def _script_ops(library: FunctionDefLibrary) -> Iterator[Any]:
    for function in library.function:
        yield from (node for node in function.node_def if node.op in op_kinds.SCRIPT_OPS)


def _calls_python(library: FunctionDefLibrary) -> bool:
    nodes = (node for function in library.function for node in function.node_def)
    return any(map(op_kinds.calls_python, nodes))


def _forward_library(library: FunctionDefLibrary, entry: str) -> Any:
    """The function whose gradient `entry` is, with all that it reaches, or None."""
    function = next(f for f in library.function if f.signature.name == entry)
    if _FORWARD not in function.attr:
        return None
    pending = [function.attr[_FORWARD].s.decode()]
    found: dict[str, Any] = {}
    while pending:
        name = pending.pop()
        forward = None if name in found else concrete_functions.function_of_context(name)
        if forward is None:
            continue
        found[name] = forward
        for node in forward.node_def:
            pending.extend(callee.name for callee in defs.callees(node))
    return protos.function_pb2.FunctionDefLibrary(function=found.values()) if found else None


def _tell(library: FunctionDefLibrary) -> None:
    """Logs, once for each place, that a callback partitions functions which nobody asked for."""
    for node in _script_ops(library):
        choice = route_selection.choose(node)
        spec = lookup.entry_of(node)
        if not isinstance(spec, CallbackSpec) or spec.description in _told:
            continue
        if choice.wants_shape:
            _told.add(spec.description)
            _log.warning(_WANTS_SHAPE, *_on_shapes(spec, node))
        elif choice.is_bounded:
            _told.add(spec.description)
            fine = advice.partitioning_is_fine(spec)
            _log.warning(_IS_BOUNDED, spec.description, choice.reason, fine)


def _on_shapes(spec: CallbackSpec, node: NodeDef) -> tuple[Any, ...]:
    """What the log says of a callback whose results have no known shapes."""
    known = route_selection.known_results(spec, node)
    index, said = next(iter(route_selection.unknown_results(spec, known).items()))
    is_known, lines = advice.what_is_known(said), advice.in_one_line(spec, known)
    return spec.description, index, is_known, lines, advice.partitioning_is_fine(spec)
