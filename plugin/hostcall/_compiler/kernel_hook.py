"""The hook that rewrites a function when TensorFlow creates its kernel: reads, plans, writes."""

from __future__ import annotations

from typing import Any, NamedTuple

from hostcall._compiler import (
    announcements,
    devices,
    four_bits,
    gradients,
    passes,
    plan,
    refusals,
)
from hostcall._compiler.clusters import execution, host_calls
from hostcall._compiler.clusters.partitioner import Partitioner
from hostcall._compiler.one_program import async_calls, distinct_results
from hostcall._compiler.one_program.host_regions import ProgramWithRegions
from hostcall._compiler.plan import Clusters, OneProgram, TargetDevices, WithCasts
from hostcall._compiler.refusals import MissingKernel
from hostcall._tf import concrete_functions
from hostcall._tf.graph import (
    attributes,
    function_defs,
    function_edits,
    function_names,
    op_kinds,
    protos,
)
from hostcall._tf.types import FunctionDefLibrary


class RewrittenFunction(NamedTuple):
    """The replacement of a must-compile function. C++ reads the fields by these names."""

    library: bytes  # a serialized FunctionDefLibrary with the new functions
    name: str  # the name of the replacement, which is the function itself if nothing changes
    partitioned: bool  # whether it runs on the host and calls compiled clusters
    # The names of the functions of its regions, in the order of their indices.
    regions: list[str] = []  # noqa: RUF012 - a field that is never changed
    added: bool = False  # whether this rewrite has added all new functions to the eager context
    # Whether its arguments have sizes found at run time: XLA should not compile for each.
    sizes_vary: bool = False


class _Request(NamedTuple):
    """A function that TensorFlow creates a kernel of."""

    library: FunctionDefLibrary  # all that the function reaches
    entry: str
    digest: str  # of the library, for names
    target: TargetDevices
    refusal: str  # XLA's message, if it has refused to compile the function


@plan.limited
def rewrite_for_kernel(
    serialized: bytes,
    entry: str,
    device: str = "",
    spans_devices: bool = False,
    refusal: bytes = b"",
    may_use_regions: bool = False,
) -> RewrittenFunction:
    """Rewrite a must-compile function when TensorFlow creates its kernel."""
    # C++ calls this again, with XLA's message as the `refusal`, if XLA refuses to compile the
    # function. `serialized` is a FunctionDefLibrary of all that it reaches. The full name of the
    # `device` is "" if it is not known. If it `spans_devices`, parts of the function may run on
    # other devices. The same input gives the same replacement, names included.
    library = _library_of(serialized)
    said = refusal.decode(errors="replace") or refusals.silent_refusal(library)
    if said and not refusals.may_partition(library):
        refusals.check_lists(library)
        return _unchanged(entry)
    target = plan.target_of(library, device, spans_devices)
    if said:
        distinct_results.join_again(function_defs.by_name(library)[entry])
        refusals.note_refused(entry, target.accelerator, said)
    digest = function_names.digest_of_functions(library.function)
    request = _Request(library, entry, digest, target, said)
    match plan.make(library, entry, target, digest, said, may_use_regions):
        case WithCasts():
            return _with_casts(request)
        case Clusters(partitioner):
            return _in_clusters(request, partitioner)
        case OneProgram(_, ProgramWithRegions() as program):
            return _with_regions(request, program)
        case OneProgram(planned):
            return _in_one_program(request, planned)
    return _unchanged(entry)


def _unchanged(entry: str, sizes_vary: bool = False) -> RewrittenFunction:
    return RewrittenFunction(b"", entry, partitioned=False, sizes_vary=sizes_vary)


def _with_casts(request: _Request) -> RewrittenFunction:
    """Return the function as one on the host, which casts and calls a must-compile function."""
    entry, target = request.entry, request.target
    function = function_defs.by_name(request.library)[entry]
    caller, called = four_bits.called_wide(function, request.digest, target.suffix)
    execution.bring_rendezvous({caller.signature.name: caller})
    caller.attr[attributes.SEQUENTIAL].b = target.is_one_device
    if request.refusal:
        plan.note_partitioned(entry)  # XLA will refuse the other function as well
    new = protos.function_pb2.FunctionDefLibrary(function=[caller, called])
    return _replacement(entry, new, caller.signature.name, partitioned=True)


def _in_one_program(request: _Request, planned: FunctionDefLibrary) -> RewrittenFunction:
    """Return the function with its side effects in order, or as it is where it has none."""
    entry, before, accelerator = request.entry, request.library, request.target.accelerator
    sizes_vary = gradients.takes_bounded_sizes(planned, entry)
    passes.keep_results_apart(planned, entry)
    callers = function_defs.all_nodes(planned, op_kinds.SCRIPT_OPS | {op_kinds.XLA_CALL_MODULE})
    calls_python = any(map(op_kinds.calls_python, callers))
    library, raising = passes.raise_errors(planned, entry, accelerator)
    if not (calls_python or function_defs.is_changed(before, library, entry)):
        return _unchanged(entry, sizes_vary)
    new, ordered = passes.order_calls(library, entry, request.digest + raising, accelerator)
    ordered.attr[attributes.ONLY_RAISES].b = not calls_python
    name = ordered.signature.name
    new.function.extend(function_defs.new_functions(before, library))
    return _replacement(entry, new, name, partitioned=False, sizes_vary=sizes_vary)


def _replacement(
    entry: str, new: FunctionDefLibrary, name: str, **fields: Any
) -> RewrittenFunction:
    """Return the replacement of a function, which owns the new functions from here on."""
    # Otherwise the kernel creator adds them, and they would outlive the function.
    added = concrete_functions.own_functions(entry, list(new.function))
    return RewrittenFunction(new.SerializeToString(), name, added=added, **fields)


def _in_clusters(request: _Request, partitioner: Partitioner) -> RewrittenFunction:
    """Return the function as one that runs on the host and calls compiled clusters."""
    entry, refusal = request.entry, request.refusal
    announcements.announce_script_ops(partitioner.library)
    name = partitioner.partition(entry)
    passes.finish_clusters(partitioner, request.target.accelerator, request.target.is_one_device)
    is_of_function = refusal and not refusals.is_of_device(refusal)
    if is_of_function and partitioner.is_one_cluster(entry):
        return _unchanged(entry)  # XLA would refuse it again
    new = protos.function_pb2.FunctionDefLibrary(function=partitioner.functions.values())
    new.function.extend(function_defs.new_functions(request.library, partitioner.library))
    if refusal:
        plan.note_partitioned(entry)
    is_searched = any(map(refusals.goes_on, partitioner.library.function))
    if refusals.is_of_xla(refusal) and not is_searched:
        announcements.expect_clusters(entry, refusal, partitioner.plans)
    return _replacement(entry, new, name, partitioned=True)


def _library_of(serialized: bytes) -> FunctionDefLibrary:
    """Return the functions, with script ops that run here, not in the process that traced them."""
    library: FunctionDefLibrary = protos.function_pb2.FunctionDefLibrary.FromString(serialized)
    if attributes.REPLACED.encode() in serialized:  # ten times as fast as a look at the nodes
        function_edits.drop_replaced(library)
    for node in function_defs.all_nodes(library, op_kinds.SCRIPT_OPS):
        if node.device:
            node.device = devices.without_process(node.device)
    async_calls.free(library)
    return library


def _with_regions(request: _Request, program: ProgramWithRegions) -> RewrittenFunction:
    """Return the function as one program that calls regions."""
    passes.keep_results_apart(program.library, program.name)
    library, raising = passes.raise_errors(program.library, program.name)
    new, ordered = passes.order_calls(library, program.name, raising)
    name = ordered.signature.name
    new.function.extend(library.function)  # effect-free ones have no copies
    host_calls.redirect(program.functions, are_regions=True)
    new.function.extend(program.functions)
    if refusals.is_of_xla(request.refusal):
        announcements.expect_regions(request.entry, request.refusal, program.functions)
    names = [region.name for region in program.regions]
    return _replacement(request.entry, new, name, partitioned=False, regions=names)


@plan.limited
def plain_for_kernel(
    serialized: bytes, cluster: str, device: str = "", spans_devices: bool = False
) -> RewrittenFunction:
    """Rewrite a cluster that calls Python so that TensorFlow's kernels run it, nothing compiled."""
    library = _library_of(serialized)
    target = plan.target_of(library, device, spans_devices)
    suffix = f"{function_names.digest_of_functions(library.function)}__uncompiled{target.suffix}"
    partitioner = plan.make_uncompiled(library, suffix, target.accelerator).partitioner
    name = partitioner.partition(cluster)
    passes.finish_clusters(partitioner, target.accelerator, target.is_one_device)
    new = protos.function_pb2.FunctionDefLibrary(function=partitioner.functions.values())
    return _replacement(cluster, new, name, partitioned=True)


@plan.limited
def find_missing_kernels(serialized: bytes, entry: str, device: str) -> list[MissingKernel]:
    """Find the nodes for which XLA will refuse a function; none if users want errors."""
    library = _library_of(serialized)
    if not refusals.may_partition(library):
        return []
    return refusals.nodes_without_kernels(library, entry, devices.kernels_for(device))
