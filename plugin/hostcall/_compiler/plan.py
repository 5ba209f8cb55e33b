"""The plan of a must-compile function: untouched, one program or clusters, with the reasons.

`make` is about a function that TensorFlow creates a kernel of. `predict` is about one that XLA has
not been given yet: explanations and `hostcall.rewrite` ask it. `make_whole` is about one that
cannot leave its program: exports. `passes.py` lists what runs before.

Ask for the plan of the very function that XLA compiles: a gradient, for example, may use the shape
of a value when no op of the program itself does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar

from hostcall._compiler import (
    constants,
    devices,
    four_bits,
    gradients,
    passes,
    refusals,
    route_selection,
    wrong_kernels,
)
from hostcall._compiler.analyses.host_ops import Rules
from hostcall._compiler.analyses.sizes import Source
from hostcall._compiler.clusters import execution
from hostcall._compiler.clusters.partitioner import SUFFIX, Partitioner
from hostcall._compiler.one_program import host_regions, ordering
from hostcall._compiler.one_program.host_regions import NotWholeError, ProgramWithRegions, ShapeOf
from hostcall._ops import requested_routes, settings
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes, function_names, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime._errors import LoweringError

_P = ParamSpec("_P")
_T = TypeVar("_T")

_TOO_DEEP = (
    "hostcall: the functions of the program call one another, or stand in one another's branches "
    "and loops, deeper than Python's stack is here. Let fewer be in one another, for example by a "
    "loop in the place of functions that call the next one; or allow more with "
    "sys.setrecursionlimit."
)


class Untouched(NamedTuple):
    """XLA compiles the function as TensorFlow gives it."""


class WithCasts(NamedTuple):
    """The host casts integers of four bits, and calls a copy of the function without them."""


class OneProgram(NamedTuple):
    """XLA compiles the function as a whole."""

    library: FunctionDefLibrary  # after the passes
    with_regions: ProgramWithRegions | None = None  # if it calls host ops


class Clusters(NamedTuple):
    """The function runs on the host, and calls compiled clusters."""

    partitioner: Partitioner  # has the functions after the passes, and the reasons


Plan: TypeAlias = Untouched | WithCasts | OneProgram | Clusters


class TargetDevices(NamedTuple):
    """The devices that a function runs on: one CPU, or others."""

    is_one_device: bool
    accelerator: str  # the full name of the device of its clusters if that is not a CPU, else ""
    suffix: str  # of the names of new functions


def target_of(library: FunctionDefLibrary, device: str, spans_devices: bool) -> TargetDevices:
    """Return the target of functions on a device, by its full name, "" if it is not known."""
    if devices.is_accelerator(device):
        return TargetDevices(False, device, devices.suffix_of(device))
    one = bool(device) and not spans_devices
    if one and execution.all_are_for(device, library.function):
        return TargetDevices(True, "", "")
    return TargetDevices(False, "", "_anywhere")


def limited(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap `work` to raise a LoweringError if a program is nested too deep for Python's stack."""

    @functools.wraps(work)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return work(*args, **kwargs)
        except RecursionError:
            raise LoweringError(_TOO_DEEP) from None

    return run


def make(
    library: FunctionDefLibrary,
    entry: str,
    target: TargetDevices,
    digest: str,
    refusal: str = "",
    may_use_regions: bool = False,
) -> Plan:
    """Plan a function that XLA is about to compile, or has refused with a message."""
    # The names of new functions have the `digest`, that of the library.
    if four_bits.cross(defs.by_name(library)[entry]) and not target.accelerator:
        return WithCasts()
    suffix = digest + SUFFIX + target.suffix
    partitioner = _partitioner(
        library, entry, suffix, refusal, target.accelerator, is_compiled=True
    )
    for node in defs.all_nodes(partitioner.library, op_kinds.SCRIPT_OPS):
        route_selection.check_forced(node)
    must_partition = partitioner.must_partition(entry)
    # Regions read the program's values in place, so these must be in the host's memory.
    if must_partition and may_use_regions and not target.accelerator:
        program = _with_regions(partitioner, entry, digest, refusal)
        if program is not None:
            return OneProgram(program.library, program)
    host_ops = partitioner.host_ops
    # The second look is at each node, and few functions need it.
    if host_ops.may_go_wrong and not refusals.may_partition(partitioner.library):
        host_ops.check_whole()
    return Clusters(partitioner) if must_partition else OneProgram(partitioner.library)


def _with_regions(
    partitioner: Partitioner, entry: str, digest: str, refusal: str
) -> ProgramWithRegions | None:
    """Return the function as one program that calls regions; None if it cannot be one."""
    library = partitioner.library
    if refusals.is_of_device(refusal) or refusals.is_of_shape(library, refusal):
        return None
    suffix = f"{digest}__regions_{refusals.digest(library, refusal)}"
    try:
        program = host_regions.write(library, entry, partitioner.host_ops, suffix)
    except NotWholeError:
        return None
    # XLA refuses a program if it cannot know the shapes of regions' results.
    return program if host_regions.may_have_shapes(program) else None


def predict(
    library: FunctionDefLibrary, entry: str, device: str = "", shape_of: ShapeOf | None = None
) -> Plan:
    """Plan a function before XLA compiles it; without `shape_of`, not with regions."""
    refusal = ""
    if refusals.may_partition(library):
        found = concrete_functions.noted(entry, devices.type_of(device))
        refusal = found or refusals.predicted(library, entry, devices.kernels_for(device))
    suffix = SUFFIX + (devices.suffix_of(device) if devices.is_accelerator(device) else "")
    taken = bool(refusal) or is_taken(library, entry)
    partitioner = _partitioner(library, entry, suffix, refusal, device, may_change=taken)
    if not partitioner.must_partition(entry):
        return OneProgram(partitioner.library) if taken else Untouched()
    if shape_of is not None and not device:
        program = host_regions.predicted_program(
            partitioner.library, entry, partitioner.host_ops, shape_of
        )
        if program is not None:
            return OneProgram(partitioner.library, program)
    return Clusters(partitioner)


class Whole(NamedTuple):
    """A function as one program that can neither call TensorFlow's kernels nor be divided."""

    library: FunctionDefLibrary  # new functions: the program's, and those that it calls
    name: str
    # The ops that XLA computes differently from TensorFlow, with their functions and the reasons.
    kept: list[tuple[NodeDef, FunctionDef, str]]


class BoundedSizeError(Exception):
    """The ops, with the reasons, for which bounded sizes keep a function from being one program."""

    def __init__(self, blocked: dict[Source, str]) -> None:
        super().__init__()
        self.blocked = blocked


def make_whole(library: FunctionDefLibrary, entry: str) -> Whole:
    """Write a function and what it reaches as one program, or raise an error."""
    before, library = library, protos.copy_of(constants.folded(library, entry))
    is_graph = settings.current.semantics == settings.GRAPH and is_taken(library, entry)
    if blocked := passes.keep_whole(library, entry, of_graph=is_graph):
        raise BoundedSizeError(blocked)
    reached = defs.reachable(library, entry).values() if is_graph else ()
    kept = [*wrong_kernels.for_host(reached)]
    library, raising = passes.raise_errors(library, entry) if is_graph else (library, "")
    # XLA's text does not pass the kernel creator, which otherwise substitutes ordered functions.
    ordered, name = ordering.order_side_effects(
        library, entry, raising + ordering.SUFFIX, barriers=False
    )
    ordered.function.extend(defs.new_functions(before, library))
    return Whole(ordered, name, kept)


# The functions that were partitioned because XLA refuses them. XLA's message about a function is
# not known when its gradient is compiled.
_partitioned: set[str] = set()


def note_partitioned(entry: str) -> None:
    """Note that a function was partitioned for a refusal, so that its gradient will be, too."""
    # A gradient knows its forward function by the name before that one got a caller that casts.
    _partitioned.update({entry, function_names.before_digest(entry)})


def _partitioner(
    library: FunctionDefLibrary,
    entry: str,
    suffix: str = SUFFIX,
    refusal: str = "",
    device: str = "",
    is_compiled: bool = False,
    may_change: bool = True,
) -> Partitioner:
    """Run the passes before the verdict on a function; return the partitioner that decides."""
    # New functions have names with the `suffix`. `refusal` is XLA's message, if XLA has refused the
    # function. The full name of the `device` is "" for the CPU. `is_compiled` tells whether XLA
    # compiles the new functions in this process.
    function = next(f for f in library.function if f.signature.name == entry)
    # In a cluster too: the functions that it calls may be TensorFlow's own, without the marks.
    may_change = may_change and attributes.CLUSTER not in function.attr
    library = passes.before_verdict(library, entry, device, refusal, is_compiled, may_change)
    if refusal:
        suffix += f"_{refusals.digest(library, refusal)}"
    everything, of_partitioned = _of_gradient(library, entry, refusal)
    rules = _rules(library, device, everything)
    partitioner = Partitioner(library, rules, suffix, device, of_partitioned, refused=bool(refusal))
    if refusal and not partitioner.has_host_op(entry):
        refusals.narrow(library, entry, refusal)
    return partitioner


def _of_gradient(library: FunctionDefLibrary, entry: str, refusal: str) -> tuple[bool, bool]:
    """Return whether a gradient is partitioned for each op, and that of a partitioned function."""
    # The ops of a gradient have no marks: TensorFlow makes them later, outside the marked code.
    forward = gradients.forward_library(library, entry)
    if forward is None:
        return False, False
    everything = any(_asks_for_partition(n) for f in forward.function for n in f.node_def)
    name = forward.function[0].signature.name
    known = bool(refusal) or name in _partitioned
    return everything, known or _partitioner(forward, name).must_partition(name)


def is_taken(library: FunctionDefLibrary, entry: str) -> bool:
    """Return whether hostcall changes a function before XLA compiles it; see reachable.cc."""
    nodes = [n for f in defs.reachable(library, entry).values() for n in f.node_def]
    if any(map(op_kinds.calls_python, nodes)) or refusals.silent_refusal(library):
        return True
    if any(map(_asks_for_partition, nodes)):
        return True
    if settings.current.functions == settings.ALL and (
        any(n.op in passes.EXAMINED for n in nodes) or four_bits.are_misread(library, entry)
    ):
        return True
    forward = gradients.forward_library(library, entry)
    name = "" if forward is None else forward.function[0].signature.name
    return forward is not None and (name in _partitioned or is_taken(forward, name))


def _asks_for_partition(node: NodeDef) -> bool:
    return requested_routes.asked(node) == requested_routes.PARTITION


def make_uncompiled(library: FunctionDefLibrary, suffix: str, device: str) -> Clusters:
    """Return a plan by which nothing is compiled."""
    choice = route_selection.Choice(requested_routes.PARTITION, "its cluster is not compiled")
    rules = Rules(lambda _: choice, has_kernel=lambda _: False, marked=lambda _: False)
    return Clusters(Partitioner(library, rules, suffix, device))


def _rules(library: FunctionDefLibrary, device: str, everything: bool) -> Rules:
    """Return rules that follow the kernels and the user; `everything` partitions for each op."""
    kernels = devices.kernels_for(device)
    has_kernel = functools.partial(op_kinds.has_xla_kernel, device_type=kernels)
    names = {function.signature.name for function in library.function}

    def choose(node: NodeDef) -> route_selection.Choice:
        if not has_kernel(node):
            obstacle = devices.WITHOUT_CALLS.format(device=device)
        else:
            obstacle = devices.obstacle(node, device)
        if obstacle:
            return route_selection.without_host_calls(node, obstacle)
        return route_selection.choose(node)

    def marked(node: NodeDef) -> bool:
        without_kernel = everything and not (node.op in names or has_kernel(node))
        return without_kernel or _asks_for_partition(node)

    return Rules(choose, has_kernel, marked, everything)
