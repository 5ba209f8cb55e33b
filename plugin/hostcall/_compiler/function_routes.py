"""The route of a function: one program, regions or clusters, on which device.

Ask for the route of the very function that XLA compiles: a gradient, for one, may use the shape of
a value when no op of the program itself does.

The kernel hook, `hostcall.rewrite` and explanations all ask this module, so they agree.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from hostcall import _versions
from hostcall._compiler import constants, four_bits, refusals, route_selection
from hostcall._compiler.analyses.host_ops import Rules
from hostcall._compiler.clusters import placement
from hostcall._compiler.clusters.partitioner import SUFFIX, Partitioner
from hostcall._compiler.semantics.checks import CHECKS
from hostcall._compiler.sizes import analysis, sources
from hostcall._ops import lookup, requested_routes, result_contract, settings, shape_demands
from hostcall._ops.array_specs import NativeSpec
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.structures import BoundedSpec
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime._errors import LoweringError

# The ops that XLA may compile to something else than TensorFlow runs.
EXAMINED = analysis.KINDS | CHECKS.keys()

GPU = "GPU"
_XLA_CPU = "XLA_CPU"
_WITHOUT_CALLS = "programs on {device} cannot call the host"


def kernels_for(device: str) -> str:
    """Return the device whose XLA kernels decide: the CPU if TensorFlow was built without GPUs."""
    device_type = placement.type_of(device)
    return device_type if device_type != GPU or knows_gpus() else "CPU"


def knows_gpus() -> bool:
    """Return whether TensorFlow is built for GPUs."""
    return bool(tf.test.is_built_with_gpu_support())


# Ops that use the elements of an operand and their order, but not its shape.
_TAKE_ELEMENTS = frozenset({"Reshape", "Size"})


def _with_shape_agnostic(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary:
    """Return the library, or a copy in which script ops record their shape-agnostic results."""
    if not any(True for _ in _shape_agnostic(library, entry)):
        return library
    copy = protos.copy_of(library)
    for node, results in _shape_agnostic(copy, entry):
        result_contract.mark_shape_agnostic(node, results)
    return copy


def _shape_agnostic(
    library: FunctionDefLibrary, entry: str
) -> Iterator[tuple[Any, result_contract.ShapeAgnosticResults]]:
    """Yield the script ops with shape-agnostic results, and these."""
    for function in library.function:
        # Of called functions, only those with ordered effects are compiled as copies with marks.
        kinds = op_kinds.STATEFUL_SCRIPT_OPS
        if function.signature.name == entry:
            kinds = op_kinds.SCRIPT_OPS
        found = [(node, _unknown_results(node)) for node in defs.nodes_of(function, kinds)]
        if any(unknown for _, unknown in found):
            uses = _Uses(function)
            for node, unknown in found:
                if results := uses.shape_agnostic(node, unknown):
                    yield node, results


def _unknown_results(node: NodeDef) -> dict[int, int | None]:
    """Return the results of unknown shape that may be shape-agnostic, with their element counts."""
    try:
        spec = lookup.spec_of(node)
    except LoweringError:  # the lowering reports it to the user
        return {}
    if spec is None or isinstance(spec, NativeSpec) or spec.options.shares_memory:
        return {}
    known = route_selection.known_results(spec, node)
    if any(isinstance(one, BoundedSpec) for one in known):
        return {}
    counts = dict(enumerate(spec.element_counts))
    return {i: counts.get(i) for i in route_selection.unknown_results(spec, known)}


class _Uses:
    """The users of each value of a FunctionDef, dead nodes included: XLA compiles these, too."""

    def __init__(self, function: FunctionDef) -> None:
        self._returned = set(function.ret.values())
        self._takers: dict[str, list[tuple[Any, int]]] = {}
        for node in function.node_def:
            for index, value in enumerate(node.input):
                self._takers.setdefault(value, []).append((node, index))

    def shape_agnostic(
        self, node: NodeDef, unknown: Mapping[int, int | None]
    ) -> result_contract.ShapeAgnosticResults:
        """Return those results of unknown shape that are unused, or used for their elements."""
        found = {}
        for index, count in unknown.items():
            value = f"{node.name}:{_result_name(node)}:{index}"
            if value not in self._returned and value not in self._takers:
                found[index] = result_contract.UNUSED
            elif count is not None and self._are_of_elements(value):
                found[index] = count
        return found

    def _are_of_elements(self, value: str) -> bool:
        """Return whether all users of a value use only its elements, not its shape."""
        pending = [value]
        while pending:
            value = pending.pop()
            if value in self._returned:
                return False
            for node, index in self._takers.get(value, ()):
                if node.op in shape_demands.ELEMENTWISE and index == 0:
                    pending.append(f"{node.name}:{_result_name(node)}:0")
                elif node.op not in _TAKE_ELEMENTS or index != 0:
                    return False
        return True


def _result_name(node: NodeDef) -> str:
    return str(op_kinds.op_def(node.op).output_arg[0].name)


# The attribute of a backward function that names its forward function.
_FORWARD = "forward_function_name"

# The functions that were partitioned because XLA refuses them. XLA's message about a function is
# not known when its gradient is compiled.
_partitioned: set[str] = set()


def partitioner_for(
    library: FunctionDefLibrary,
    entry: str,
    suffix: str = SUFFIX,
    refusal: str = "",
    device: str = "",
    compiled: bool = False,
    taken: bool = True,
) -> Partitioner:
    """Return the partitioner that decides the route of a must-compile function."""
    # New functions have names with the `suffix`. `refusal` is XLA's message, if XLA has refused the
    # function. The full name of the `device` is "" for the CPU. `compiled` tells whether XLA
    # compiles the new functions in this process, `taken` whether hostcall may change the function:
    # `is_taken`.
    function = next(f for f in library.function if f.signature.name == entry)
    # In a cluster too: the functions that it calls may be TensorFlow's own, without the marks.
    is_whole = taken and attributes.CLUSTER not in function.attr
    if is_whole:
        library = constants.folded(library, entry)
    library = _with_shape_agnostic(library, entry)
    if is_whole:
        library = analysis.marked_for_host(library, entry, compiled, device)
    if refusal:
        library = refusals.marked(library, refusal)
        refusals.mark_found(library, refusal)
        suffix += f"_{refusals.digest(library, refusal)}"
    # The ops of a gradient have no marks: TensorFlow makes them later, outside the marked code.
    everything = gradient = False
    if (forward := _forward_library(library, entry)) is not None:
        everything = any(_asks_for_partition(n) for f in forward.function for n in f.node_def)
        name = forward.function[0].signature.name
        gradient = (
            bool(refusal)
            or name in _partitioned
            or partitioner_for(forward, name).must_partition(name)
        )
    rules = _rules(library, device, everything)
    partitioner = Partitioner(library, rules, suffix, device, gradient, refused=bool(refusal))
    if refusal and not partitioner.has_host_op(entry):
        refusals.narrow(library, entry, refusal)
    return partitioner


def predicted_partitioner(library: FunctionDefLibrary, entry: str, device: str = "") -> Partitioner:
    """Return the partitioner of a function before XLA, which may refuse it, compiles it."""
    refusal = ""
    if refusals.may_partition(library):
        found = concrete_functions.noted(entry, placement.type_of(device))
        refusal = found or refusals.predicted(library, entry, kernels_for(device))
    suffix = SUFFIX + (placement.suffix_of(device) if placement.is_accelerator(device) else "")
    taken = bool(refusal) or is_taken(library, entry)
    return partitioner_for(library, entry, suffix, refusal, device, taken=taken)


def is_taken(library: FunctionDefLibrary, entry: str) -> bool:
    """Return whether hostcall changes a function before XLA compiles it; see reachable.cc."""
    nodes = [n for f in defs.reachable(library, entry).values() for n in f.node_def]
    if any(map(op_kinds.calls_python, nodes)) or refusals.silent_refusal(library):
        return True
    if any(map(_asks_for_partition, nodes)):
        return True
    if settings.current.functions == settings.ALL and (
        any(n.op in EXAMINED for n in nodes) or four_bits.are_misread(library, entry)
    ):
        return True
    forward = _forward_library(library, entry)
    name = "" if forward is None else forward.function[0].signature.name
    return forward is not None and (name in _partitioned or is_taken(forward, name))


def _asks_for_partition(node: NodeDef) -> bool:
    return requested_routes.asked(node) == requested_routes.PARTITION


def takes_bounded_sizes(library: FunctionDefLibrary, entry: str) -> bool:
    """Return whether a function is a gradient that takes values of sizes found at run time."""
    forward = _forward_library(library, entry)
    return forward is not None and any(
        defs.nodes_of(function, sources.ALWAYS) for function in forward.function
    )


def note_partitioned(entry: str) -> None:
    """Note that a function was partitioned for a refusal, so that its gradient will be, too."""
    # A gradient knows its forward function by the name before that one got a caller that casts.
    _partitioned.update({entry, defs.before_digest(entry)})


def note_refused(entry: str, device: str, refusal: str) -> None:
    """Note what XLA has said about a function for a device, so that it is explained as it runs."""
    concrete_functions.note(entry, placement.type_of(device), refusal)


def refused_parts(entry: str, device: str) -> list[str]:
    """Return what XLA has said about the clusters of a function that it has refused as well."""
    kind = placement.type_of(device)
    parts = dict.fromkeys(concrete_functions.derived_from(entry))
    said = (concrete_functions.noted(name, kind) for name in parts)
    return [refusals.summary(refusal) for refusal in said if refusals.is_of_xla(refusal)]


def uncompiling_partitioner(library: FunctionDefLibrary, suffix: str, device: str) -> Partitioner:
    """Return a partitioner that compiles nothing."""
    choice = route_selection.Choice(requested_routes.PARTITION, "its cluster is not compiled")
    rules = Rules(lambda _: choice, has_kernel=lambda _: False, marked=lambda _: False)
    return Partitioner(library, rules, suffix, device)


def _rules(library: FunctionDefLibrary, device: str, everything: bool) -> Rules:
    """Return rules that follow the kernels and the user; `everything` partitions for each op."""
    has_kernel = functools.partial(op_kinds.has_xla_kernel, device_type=kernels_for(device))
    names = {function.signature.name for function in library.function}

    def choose(node: NodeDef) -> route_selection.Choice:
        if not has_kernel(node):
            obstacle = _WITHOUT_CALLS.format(device=device)
        else:
            obstacle = _device_obstacle(node, device)
        if obstacle:
            return route_selection.without_host_calls(node, obstacle)
        return route_selection.choose(node)

    def marked(node: NodeDef) -> bool:
        without_kernel = everything and not (node.op in names or has_kernel(node))
        return without_kernel or _asks_for_partition(node)

    return Rules(choose, has_kernel, marked)


def _device_obstacle(node: NodeDef, device: str) -> str:
    """Return why a program for a device cannot call a script op's function; "" if it can."""
    device_type = placement.type_of(device)
    without_calls = _WITHOUT_CALLS.format(device=device)
    if device_type == _XLA_CPU and not _versions.runs_on_the_caller(tf.__version__):
        return f"{without_calls}, since calls that read its memory would wait for them"
    if device_type != GPU:
        return ""
    if tf.test.is_built_with_rocm():  # hostcall has no handler for AMD's GPUs
        return without_calls
    spec = lookup.spec_of(node)
    if spec is not None and spec.custom_call != CallbackSpec.custom_call:
        return f"programs on {device} cannot call native code"
    return ""


def _forward_library(library: FunctionDefLibrary, entry: str) -> FunctionDefLibrary | None:
    """Return the forward function of a gradient and the functions that it reaches, or None."""
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
