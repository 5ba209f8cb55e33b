"""The hook that rewrites a function when TensorFlow creates its kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import tensorflow as tf

from hostcall._compiler import announcements, four_bits, function_routes, refusals, route_selection
from hostcall._compiler.analyses import turns
from hostcall._compiler.clusters import execution, host_calls, placement
from hostcall._compiler.clusters.partitioner import SUFFIX, Partitioner
from hostcall._compiler.one_program import async_calls, host_regions, ordering
from hostcall._compiler.one_program.host_regions import NotWholeError
from hostcall._compiler.refusals import MissingKernel
from hostcall._compiler.semantics import failures
from hostcall._compiler.sizes import analysis
from hostcall._ops import lookup, settings
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes, function_defs, op_kinds, protos
from hostcall._tf.types import FunctionDefLibrary
from hostcall_runtime._errors import LoweringError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TOO_DEEP = (
    "hostcall: the functions of the program call one another, or stand in one another's branches "
    "and loops, deeper than Python's stack is here. Let fewer be in one another, by a loop in the "
    "place of functions that call the next one, say; or allow more with sys.setrecursionlimit."
)


def limited(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap `work` to raise a LoweringError if a program is nested too deep for Python's stack."""

    @functools.wraps(work)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return work(*args, **kwargs)
        except RecursionError:
            raise LoweringError(_TOO_DEEP) from None

    return run


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


@limited
def rewrite_for_kernel(
    serialized: bytes,
    entry: str,
    device: str = "",
    others: bool = False,
    refusal: bytes = b"",
    whole: bool = False,
) -> RewrittenFunction:
    """Rewrite a must-compile function when TensorFlow creates its kernel."""
    # C++ calls this again, with XLA's message as the `refusal`, if XLA refuses to compile the
    # function. `serialized` is a FunctionDefLibrary of all that it reaches. The full name of the
    # `device` is "" if it is not known. `others` tells whether parts of the function may run on
    # other devices, and `whole` whether it may become one program that calls regions. The same
    # input gives the same replacement, names included.
    library = _library_of(serialized)
    said = refusal.decode(errors="replace") or refusals.silent_refusal(library)
    if said and not refusals.may_partition(library):
        refusals.check_lists(library)
        return RewrittenFunction(b"", entry, partitioned=False)
    where = _where(library, device, others)
    if said:
        analysis.join_again(function_defs.by_name(library)[entry])
        function_routes.note_refused(entry, where.accelerator, said)
    digest = function_defs.digest_of_functions(library.function)
    if four_bits.cross(function_defs.by_name(library)[entry]) and not where.accelerator:
        return _with_four_bits(library, entry, digest, where, said)
    partitioner = function_routes.partitioner_for(
        library, entry, digest + SUFFIX + where.suffix, said, where.accelerator, compiled=True
    )
    before, library = library, partitioner.library
    changed = analysis.new_functions(before, library)
    for node in function_defs.all_nodes(library, op_kinds.SCRIPT_OPS):
        route_selection.check_forced(node)
    holds_host_ops = said or partitioner.must_partition(entry)
    # Regions read the program's values in place, so these must be in the host's memory.
    whole = whole and not (where.accelerator or refusals.is_of_device(said))
    whole = whole and not refusals.is_of_shape(library, said)
    if (
        holds_host_ops
        and whole
        and (program := _with_regions(partitioner, entry, digest, said, where))
    ):
        return program
    if not refusals.may_partition(library):
        partitioner.host_ops.check_whole()
    if partitioner.must_partition(entry):
        return _in_clusters(partitioner, entry, where, said, changed)
    return _in_one_program(before, library, entry, digest, where, changed)


def _with_four_bits(
    library: FunctionDefLibrary, entry: str, digest: str, where: _Where, said: str
) -> RewrittenFunction:
    """Return the function as one on the host, which casts and calls a must-compile function."""
    function = function_defs.by_name(library)[entry]
    caller, called = four_bits.called_wide(function, digest, where.suffix)
    execution.bring_rendezvous({caller.signature.name: caller})
    caller.attr[attributes.SEQUENTIAL].b = where.is_one_device
    if said:
        function_routes.note_partitioned(entry)  # XLA will refuse the other function as well
    new = protos.function_pb2.FunctionDefLibrary(function=[caller, called])
    return _replacement(entry, new, caller.signature.name, partitioned=True)


def _in_one_program(
    before: FunctionDefLibrary,
    library: FunctionDefLibrary,
    entry: str,
    digest: str,
    where: _Where,
    changed: list[Any],
) -> RewrittenFunction:
    """Return the function with its side effects in order, or as it is where it has none."""
    script_ops = [*function_defs.all_nodes(library, op_kinds.SCRIPT_OPS)]
    sizes_vary = function_routes.takes_bounded_sizes(library, entry)
    functions = function_defs.by_name(library)
    analysis.keep_apart(functions[entry], functions)
    calls_python = any(map(op_kinds.calls_python, function_defs.all_nodes(library)))
    library, raising = _raising(library, entry, where)
    if not (calls_python or analysis.is_changed(before, library, entry)):
        return RewrittenFunction(b"", entry, partitioned=False, sizes_vary=sizes_vary)
    if raising:
        changed = analysis.new_functions(before, library)
    new, name = ordering.order_side_effects(library, entry, digest + raising + ordering.SUFFIX)
    # On GPUs, XLA waits for each custom call.
    if placement.type_of(where.accelerator) != function_routes.GPU:
        async_calls.begin_early(new, name, library)
    _mark_entry(script_ops, function_defs.by_name(new)[name])
    function_defs.by_name(new)[name].attr[attributes.ONLY_RAISES].b = not calls_python
    new.function.extend(changed)
    return _replacement(entry, new, name, partitioned=False, sizes_vary=sizes_vary)


def _raising(library: FunctionDefLibrary, entry: str, where: _Where) -> tuple[Any, str]:
    """Return a library whose program raises graph mode's errors, and a suffix for names of it."""
    # TensorFlow's kernels for GPUs do not raise, either.
    if where.accelerator or settings.current.semantics == settings.XLA:
        return library, ""
    raising = failures.add(library, entry)
    return raising, "__raising" if raising is not library else ""


def _replacement(
    entry: str, new: FunctionDefLibrary, name: str, **fields: Any
) -> RewrittenFunction:
    """Return the replacement of a function, which owns the new functions from here on."""
    # Otherwise the kernel creator adds them, and they would outlive the function.
    added = concrete_functions.own_functions(entry, list(new.function))
    return RewrittenFunction(new.SerializeToString(), name, added=added, **fields)


def _in_clusters(
    partitioner: Partitioner, entry: str, where: _Where, said: str, changed: list[Any]
) -> RewrittenFunction:
    """Return the function as one that runs on the host and calls compiled clusters."""
    announcements.announce_script_ops(partitioner.library)
    name = _partition(partitioner, entry, where)
    is_of_function = said and not refusals.is_of_device(said)
    if is_of_function and partitioner.is_one_cluster(entry):
        return RewrittenFunction(b"", entry, partitioned=False)  # XLA would refuse it again
    new = protos.function_pb2.FunctionDefLibrary(function=partitioner.functions.values())
    new.function.extend(changed)
    if said:
        function_routes.note_partitioned(entry)
    is_searched = any(map(refusals.goes_on, partitioner.library.function))
    if refusals.is_of_xla(said) and not is_searched:
        announcements.expect_clusters(entry, said, partitioner.plans)
    return _replacement(entry, new, name, partitioned=True)


def _library_of(serialized: bytes) -> FunctionDefLibrary:
    """Return the functions, with script ops that run here, not in the process that traced them."""
    library: FunctionDefLibrary = protos.function_pb2.FunctionDefLibrary.FromString(serialized)
    if attributes.REPLACED.encode() in serialized:  # ten times as fast as a look at the nodes
        function_defs.drop_replaced(library)
    for node in function_defs.all_nodes(library, op_kinds.SCRIPT_OPS):
        if node.device:
            wanted = tf.DeviceSpec.from_string(node.device)
            node.device = wanted.replace(job=None, replica=None, task=None).to_string()
    async_calls.free(library)
    return library


def _with_regions(
    partitioner: Partitioner, entry: str, digest: str, said: str, where: _Where
) -> RewrittenFunction | None:
    """Return the function as one program that calls regions; None if it cannot be one."""
    suffix = f"{digest}__regions_{refusals.digest(partitioner.library, said)}"
    try:
        program = host_regions.write(partitioner.library, entry, partitioner.host_ops, suffix)
    except NotWholeError:
        return None
    if not host_regions.may_have_shapes(program):
        return None  # XLA would refuse it
    functions = function_defs.by_name(program.library)
    analysis.keep_apart(functions[program.name], functions)
    library, raising = _raising(program.library, program.name, where)
    new, name = ordering.order_side_effects(library, program.name, raising + ordering.SUFFIX)
    async_calls.begin_early(new, name, library)
    script_ops = function_defs.all_nodes(library, op_kinds.SCRIPT_OPS)
    _mark_entry(script_ops, function_defs.by_name(new)[name])
    new.function.extend(library.function)  # effect-free ones have no copies
    host_calls.redirect(program.functions, are_regions=True)
    new.function.extend(program.functions)
    if refusals.is_of_xla(said):
        announcements.expect_regions(entry, said, program.functions)
    names = [region.name for region in program.regions]
    return _replacement(entry, new, name, partitioned=False, regions=names)


@limited
def plain_for_kernel(
    serialized: bytes, cluster: str, device: str = "", others: bool = False
) -> RewrittenFunction:
    """Rewrite a cluster that calls Python so that TensorFlow's kernels run it, nothing compiled."""
    library = _library_of(serialized)
    where = _where(library, device, others)
    suffix = f"{function_defs.digest_of_functions(library.function)}__uncompiled{where.suffix}"
    partitioner = function_routes.uncompiling_partitioner(library, suffix, where.accelerator)
    name = _partition(partitioner, cluster, where)
    new = protos.function_pb2.FunctionDefLibrary(function=partitioner.functions.values())
    return _replacement(cluster, new, name, partitioned=True)


@limited
def find_missing_kernels(serialized: bytes, entry: str, device: str) -> list[MissingKernel]:
    """Find the nodes for which XLA will refuse a function; none if users want errors."""
    library = _library_of(serialized)
    if not refusals.may_partition(library):
        return []
    return refusals.nodes_without_kernels(library, entry, function_routes.kernels_for(device))


class _Where(NamedTuple):
    """The devices that a partitioned function runs on: one CPU, or others."""

    is_one_device: bool
    accelerator: str  # the device of its clusters if that is not a CPU, else ""
    suffix: str  # of the names of new functions


def _where(library: FunctionDefLibrary, device: str, others: bool) -> _Where:
    if placement.is_accelerator(device):
        return _Where(False, device, placement.suffix_of(device))
    one = bool(device) and not others
    if one and execution.all_are_for(device, library.function):
        return _Where(True, "", "")
    return _Where(False, "", "_anywhere")


def _partition(partitioner: Partitioner, entry: str, where: _Where) -> str:
    """Partition a function; return the name of its replacement."""
    name = partitioner.partition(entry)
    functions = partitioner.functions
    old = function_defs.by_name(partitioner.library)
    for function in functions.values():
        if attributes.CLUSTER in function.attr:
            analysis.keep_apart(function, old | functions)
    host_calls.redirect(functions.values())
    execution.bring_rendezvous(functions)
    if where.accelerator:
        placement.carry(functions, old)
    if where.is_one_device:
        execution.run_in_sequence(functions, old)
        execution.share(functions, old)
    return name


def _mark_entry(script_ops: Iterable[Any], entry: Any) -> None:
    """Record on the entry of a program whether its calls share memory or take turns."""
    nodes = [*script_ops]
    entry.attr[attributes.SHARES_MEMORY].b = any(
        isinstance(e, CallbackSpec) and e.user.shares_memory for e in map(lookup.entry_of, nodes)
    )
    # Calls with side effects are ordered by their tokens.
    entry.attr[attributes.TAKES_TURNS].b = any(map(turns.takes_turns, nodes))
