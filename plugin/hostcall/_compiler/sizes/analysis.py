"""Ops that XLA may get wrong: those that bounded sizes put on the host, and wrong kernels.

In functions that hostcall changes, these ops are on the host. Other functions are compiled as stock
TensorFlow does, unless `hostcall.configure(dynamic_sizes="checked")`; explanations name the ops.

A *source* is an op whose results have bounded sizes (`sources.py`). `flow.py` follows these sizes
to ops that are not known to be right with them. The source then becomes a host op, so that XLA
knows the size when it compiles the ops after it. The other op becomes a host op instead if that
costs less. If all ops must be in one program, that is an error.

Some facts are known only when XLA knows all shapes. Two kernels check them
(csrc/tensorflow/size_checks.cc). They pass values on, and refuse two kinds that XLA would get
wrong: results of conditionals whose branches return different sizes, and list elements of another
dtype than the list's. A refused op is put on the host.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import tensorflow as tf

from hostcall._compiler import four_bits, ops, route_selection, wrong_kernels
from hostcall._compiler.analyses import node_places
from hostcall._compiler.analyses.sizes import Shape, Size, Source, Symbol, Tensor
from hostcall._compiler.semantics import random_numbers, slices
from hostcall._compiler.sizes import sources, windows
from hostcall._compiler.sizes.flow import ANY_DIMENSION, Flow, Offence, SymbolMaker, symbol_maker
from hostcall._functions.options import TRACE
from hostcall._ops import lookup, result_shapes
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._ops.structures import BoundedSpec, Spec
from hostcall._tf.graph import attributes, function_edits, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.function_edits import FunctionEdits, NodeWriter
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef
from hostcall_runtime._errors import LoweringError

_LIST = "HostcallList"
# Ops that read or write the elements of a list.
LIST_OPS = frozenset(
    {"TensorListConcat", "TensorListConcatV2", "TensorListGather", "TensorListGetItem"}
    | {"TensorListPopBack", "TensorListPushBack", "TensorListSetItem", "TensorListStack"}
)
# Ops whose XLA kernels end the process where these operands, if constants of the program, do not
# fit the others.
_GUARDED: Mapping[str, int] = {
    "BatchToSpaceND": 1,
    "MatrixDiagPartV2": 1,
    "MatrixDiagPartV3": 1,
    "MatrixSetDiagV2": 2,
    "MatrixSetDiagV3": 2,
    "TopKV2": 1,
    "UnsortedSegmentMax": 2,
    "UnsortedSegmentMin": 2,
    "UnsortedSegmentProd": 2,
    "UnsortedSegmentSum": 2,
}
_SOURCES = sources.ALWAYS | {slices.OP}
# Ops that get a check.
_CHECKED = LIST_OPS | op_kinds.BRANCH_OPS | _GUARDED.keys() | _SOURCES

# Functions without any of these ops need no analysis.
KINDS = frozenset(sources.ALWAYS | sources.BY_OPERANDS.keys() | _CHECKED | ops.DIFFERENT)


def new_functions(before: FunctionDefLibrary, after: FunctionDefLibrary) -> list[Any]:
    """List the functions with new names, which TensorFlow does not have."""
    known = {function.signature.name for function in before.function}
    return [function for function in after.function if function.signature.name not in known]


def is_changed(before: FunctionDefLibrary, after: FunctionDefLibrary, entry: str) -> bool:
    """Return whether a function, or one that it calls, has other ops than before."""
    old, new = (defs.by_name(library)[entry] for library in (before, after))
    return [node.op for node in old.node_def] != [node.op for node in new.node_def] or bool(
        new_functions(before, after)
    )


_AT_RISK = "a size that only the run knows, {of}, is only bounded in a compiled program: {reason}"
_STUCK = (
    "hostcall: op '{op}' ({kind}) takes a size that is only bounded, and nothing keeps it "
    "from that. This is a bug in hostcall; please report it."
)
# Advice on how to replace ops whose sizes depend on data.
_INSTEAD = {slices.OP: "; for a constant size write tf.slice(x, [begin], [size])"}
_TAKES_SIZES = "it takes a size that is only bounded in a compiled program: {reason}"
_WRONG = "XLA computes something else than TensorFlow: {reason}"


def marked_for_host(
    library: FunctionDefLibrary, entry: str, compiled: bool = False, device: str = ""
) -> FunctionDefLibrary:
    """Return a copy with marks for the host on ops that XLA, if `compiled`, would get wrong."""
    # The full name of the `device` is "" for the CPU.
    separated = random_numbers.are_those_of_graph_mode() and not device
    labeled = compiled and not device
    # TensorFlow's kernels for accelerators have values of their own.
    of_graph = not device
    copy = marked(
        library,
        entry,
        compiled=compiled,
        labeled=labeled,
        separated=separated,
        of_graph=of_graph,
    )
    for function in copy.function:
        found = defs.nodes_of(function, ops.FOR_HOST)
        nodes = {node.name: node for node in function.node_def} if found else {}
        for node in found:
            if wrong_kernels.goes_to_host(node, nodes, of_graph):
                reason = wrong_kernels.reason(node, nodes, of_graph)
                node.attr[attributes.WRONG].s = _WRONG.format(reason=reason).encode()
    four_bits.mark_variables(copy)
    return copy


def risks(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that XLA may get wrong if it compiles a function whole, with the reasons."""
    found = {}
    for name, function in defs.reachable(library, entry).items():
        nodes = {node.name: node for node in function.node_def}
        for node in defs.nodes_of(function, ops.DIFFERENT):
            if reason := wrong_kernels.reason(node, nodes):
                found[name, node.name] = _WRONG.format(reason=reason)
    return found | _Search(protos.copy_of(library), entry).at_risk()


def marked(
    library: FunctionDefLibrary,
    entry: str,
    whole: bool = False,
    compiled: bool = False,
    labeled: bool = False,
    separated: bool = False,
    of_graph: bool = True,
) -> FunctionDefLibrary:
    """Return a copy with marks on the ops that the sizes they make or take force onto the host."""
    # If `whole`, no op can be on the host. If XLA gets exactly the functions that are returned,
    # `compiled`, facts that only XLA can tell are checked there, say equal branch sizes; and
    # changed functions get new names. If `labeled`, ops take the kernels of hostcall's that are
    # faster than XLA's. If it `draws`, its random numbers are those of graph mode. Unless it is
    # `of_graph`, its values are XLA's where these are not plainly wrong, whatever the settings.
    copy = protos.copy_of(library)
    drawing = random_numbers.separate(copy, entry) if separated else set[str]()
    is_on_host = _never if whole else route_selection.is_on_host
    search = _Search(copy, entry, is_on_host, of_graph)
    search.run()
    for name, function in search.functions.items():
        _mark(name, function, search)
    if compiled:
        checked = _add_checks(search) if search.has(_CHECKED) else set[str]()
        if labeled:
            checked |= _label(search)
        _rename(search.functions, search.replaced | checked | drawing, entry)
    return copy


def find_blockers(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that block a function from being one program, with the reasons."""
    search = _Search(protos.copy_of(library), entry)
    search.run()
    return search.blocked


def _never(_: NodeDef) -> bool:
    return False


def _mark(name: str, function: FunctionDef, search: _Search) -> None:
    """Mark the ops of a function that are blocked or have bounded results."""
    found = {n for places in (search.blocked, search.bounded) for f, n in places if f == name}
    nodes = defs.nodes_of(function, op_kinds.SCRIPT_OPS)
    if found:
        nodes += [node for node in function.node_def if node.name in found]
    for node in nodes:
        place = (name, node.name)
        if place in search.blocked:
            node.attr[attributes.BLOCKER].s = search.blocked[place].encode()
        else:
            dims = sorted(search.bounded.get(place, ()))
            protos.set_pairs(node, attributes.PREDICTED, dims)


class _Search:
    """A search for bounded sizes in a program. It rewrites ops that XLA gets wrong in other ops."""

    def __init__(
        self,
        library: FunctionDefLibrary,
        entry: str,
        is_on_host: Callable[[Any], bool] = _never,
        of_graph: bool = True,
    ) -> None:
        # The functions that the entry reaches, by name.
        self.functions: dict[str, FunctionDef] = defs.reachable(library, entry)
        # Those of them that XLA may get.
        self.compiled = {n: f for n, f in self.functions.items() if not defs.has_frames(f)}
        # Most functions hold none of the ops that the search looks for.
        self._kinds = {n.op for function in self.functions.values() for n in function.node_def}
        self._entry = entry
        self._is_on_host = is_on_host
        self._of_graph = of_graph
        self.blocked: dict[Source, str] = {}  # the reasons why ops cannot be in the program
        # For other sources, the (result, dimension)s whose size may be bounded.
        self.bounded: Mapping[Source, set[tuple[int, int]]] = {}
        self.without_bounds: AbstractSet[Source] = frozenset()  # those whose bounds only XLA knows
        self._windows: Mapping[Source, list[int]] = {}  # as `Flow` finds them
        self.replaced: set[str] = set()  # the functions with rewritten ops

    @functools.cached_property
    def _unequal(self) -> Collection[Source]:
        """The conditionals whose branches return different sizes."""
        has_any = self.has(op_kinds.BRANCH_OPS)
        return sources.find_unequal_branches(self.functions) if has_any else ()

    def run(self) -> None:
        if self.has(ops.DIFFERENT):
            self.replaced |= wrong_kernels.replace(self.compiled, self._of_graph)
        if not self._any_may_be_bounded():
            return
        self.replaced |= wrong_kernels.replace_ones_like(self.compiled)
        self.replaced |= sources.open_sizes(self.functions, self._unequal) & self.compiled.keys()
        self._put_on_host_until_right()
        windows_left = {at: dims for at, dims in self._windows.items() if at not in self.blocked}
        self.replaced |= windows.keep_within(self.compiled, windows_left)

    def _put_on_host_until_right(self) -> None:
        loops = _loops_around(self.functions, self._entry)
        while offences := self._offences():
            known = len(self.blocked)
            # XLA knows the result sizes of host ops, so the next round may find other offences.
            for source, blocking in _by_source(offences).items():
                self._put_on_host(source, blocking, loops)
            if len(self.blocked) == known:
                raise LoweringError(_STUCK.format(op=offences[0].node, kind=offences[0].op))

    def has(self, kinds: Collection[str]) -> bool:
        """Return whether the program has an op of one of these kinds."""
        return not self._kinds.isdisjoint(kinds)

    def at_risk(self) -> dict[Source, str]:
        found: dict[Source, str] = {}
        offences = self._offences() if self._any_may_be_bounded() else []
        for offence in offences:
            place = (offence.function, offence.node)
            others = sorted(f"'{n}' ({self._node((f, n)).op})" for f, n in offence.sources)
            of = f"that of {', '.join(others)}" if place not in offence.sources else "its own"
            found.setdefault(place, _AT_RISK.format(of=of, reason=offence.reason))
        return found

    def _offences(self) -> list[Offence]:
        """Follow the remaining bounded sizes, and note them."""
        flow = Flow(self.functions, self._results, self.blocked, self._unequal)
        flow.run(self._entry)
        self.bounded, self._windows = flow.bounded, flow.windows
        self.without_bounds = flow.without_bounds
        return [*flow.offences.values()]

    def _put_on_host(
        self, source: Source, offences: list[Offence], loops: Mapping[str, int]
    ) -> None:
        """Put a source on the host, or the ops that it blocks if that costs less."""
        is_script_op = self._node(source).op in op_kinds.SCRIPT_OPS
        limit = loops.get(source[0], 0)
        if all(
            self._has_no_kernel(offence)
            or (
                not is_script_op
                and _ends_sizes(offence, source)
                and loops.get(offence.function, 0) <= limit
            )
            for offence in offences
        ):
            for offence in offences:
                reason = _TAKES_SIZES.format(reason=offence.reason)
                self.blocked.setdefault((offence.function, offence.node), reason)
            return
        instead = _INSTEAD.get(self._node(source).op, "")
        self.blocked.setdefault(source, _reason(offences[0], source, self.functions) + instead)

    def _node(self, source: Source) -> NodeDef:
        return next(n for n in self.functions[source[0]].node_def if n.name == source[1])

    def _has_no_kernel(self, offence: Offence) -> bool:
        """Return whether an op has no XLA kernel, so that it is on the host anyway."""
        node = self._node((offence.function, offence.node))
        if offence.calls or node.op in op_kinds.SCRIPT_OPS:
            return False
        return not op_kinds.has_xla_kernel(node)

    def _results(self, source: Source, node: NodeDef, *rest: Any) -> list[Shape | None] | None:
        on_host = source in self.blocked or self._is_on_host(node)
        return None if on_host else _results_of(node, *rest)

    def _any_may_be_bounded(self) -> bool:
        """Return whether some result may have a bounded size, whatever script ops take."""
        if self._unequal or any(
            sources.in_function(function, name == self._entry)
            for name, function in self.functions.items()
        ):
            return True
        if not self.has(op_kinds.SCRIPT_OPS):
            return False

        for name, function in self.functions.items():
            for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
                operands = [Tensor()] * len(node.attr["Tin"].list.type)
                if self._results((name, node.name), node, operands, symbol_maker("")) is not None:
                    return True
        return False


def _loops_around(functions: Functions, entry: str) -> dict[str, int]:
    """Return the largest number of loops that each function of a program runs inside of."""
    around = {entry: 0}
    pending = [entry]
    while pending:
        name = pending.pop()
        for node in defs.calls_in(functions[name], functions):
            loops = around[name] + (node.op in op_kinds.LOOP_OPS)
            for called in defs.called_functions(node, functions):
                if called in functions and around.get(called, -1) < loops:
                    around[called] = loops
                    pending.append(called)
    return around


def _by_source(offences: Iterable[Offence]) -> dict[Source, list[Offence]]:
    found: dict[Source, list[Offence]] = {}
    for offence in offences:
        for source in sorted(offence.sources):
            found.setdefault(source, []).append(offence)
    return found


def _ends_sizes(offence: Offence, source: Source) -> bool:
    """Return whether an op, run on the host, leaves no size for which XLA would recompile."""
    if (offence.function, offence.node) == source or offence.op in op_kinds.SCRIPT_OPS:
        return False
    return not offence.calls and all(
        shape is not None and None not in shape for shape in offence.shapes
    )


def _reason(offence: Offence, source: Source, functions: Functions) -> str:
    if (offence.function, offence.node) == source:
        return f"the size of its results is only bounded in a compiled program: {offence.reason}"
    where = node_places.describe_place(functions, offence.function, offence.node, offence.op)
    return (
        f"a size of its results is only bounded and reaches op '{offence.node}' ({offence.op})"
        f"{where}, which XLA may get wrong: {offence.reason}"
    )


# Stand-ins for unknown sizes and ranks: they only serve to learn which sizes are bounded.
_SIZES = (2, 8, 3, 1)
_RANKS = (1, 2, 3, 4, 0)


def _results_of(
    node: NodeDef, operands: Sequence[Tensor], symbol: SymbolMaker
) -> list[Shape | None] | None:
    """Return the shapes of a script op's results in a program, or None if no size is bounded."""
    try:
        spec = lookup.existing_spec_of(node)
    except LoweringError:  # the op cannot run in this process
        return None
    if spec.like is not None:
        followed = [operands[i] for i in spec.like]
        shapes = [operand.shape for operand in followed]
        return _padded(shapes, node) if any(operand.bounded for operand in followed) else None
    said = _said(spec, node, operands)
    if not any(isinstance(one, BoundedSpec) for one in said):
        return None
    exact = all(_is_exact(operand) for operand in operands) or spec.shape_function is None
    found = [_sizes(i, one, exact, symbol) for i, one in enumerate(said)]
    return _padded(found, node)


def _padded(shapes: list[Shape | None], node: NodeDef) -> list[Shape | None]:
    """Append the scalar shape of the hidden result of an EagerPyFunc."""
    hidden = len(node.attr["Tout"].list.type) - len(shapes)
    return [*shapes, *[()] * hidden]


def _said(spec: CallbackSpec, node: NodeDef, operands: Sequence[Tensor]) -> list[Spec]:
    """Return the specs of the results for these operands, with stand-ins for unknown sizes."""
    declared = spec.options.result
    if spec.shape_function is None or (isinstance(declared, str) and declared == TRACE):
        return list(spec.static_specs)
    dtypes = [tf.as_dtype(dtype) for dtype in node.attr["Tin"].list.type]
    for size, rank in itertools.product(_SIZES, _RANKS):
        specs = [_made_up(o, dtype, size, rank) for o, dtype in zip(operands, dtypes, strict=True)]
        with contextlib.suppress(LoweringError):  # the shape function may refuse some stand-ins
            return result_shapes.known(spec, node, specs)
        if all(map(_is_exact, operands)):
            break
    return list(spec.static_specs)


def _made_up(operand: Tensor, dtype: tf.DType, size: int, rank: int) -> Spec:
    shape = (None,) * rank if operand.shape is None else operand.shape
    sizes = [_bound(n, size) for n in shape]
    unknown = operand.bounded and operand.shape is None
    dims = [d for d, n in enumerate(shape) if unknown or isinstance(n, Symbol)]
    return BoundedSpec(sizes, dtype, dims) if dims else tf.TensorSpec(sizes, dtype)


def _bound(size: Size, made_up: int) -> int:
    known = size.bound if isinstance(size, Symbol) else size
    return made_up if known is None else known


def _is_exact(operand: Tensor) -> bool:
    """Return whether an operand needs no stand-ins."""
    return operand.shape is not None and all(
        size is not None and not (isinstance(size, Symbol) and size.bound is None)
        for size in operand.shape
    )


def _sizes(index: int, spec: Spec, exact: bool, symbol: SymbolMaker) -> Shape | None:
    if isinstance(spec, BoundedSpec):
        return tuple(
            symbol(index, dim, size if exact else None)
            if dim in spec.dynamic_dims
            else (size if exact else None)
            for dim, size in enumerate(spec.shape.as_list())
        )
    if spec.shape.rank is None:
        return ()  # compiling it is an error
    return tuple(spec.shape.as_list() if exact else [None] * spec.shape.rank)


def _add_checks(search: _Search) -> set[str]:
    """Check sizes of branches and lists in functions to compile; return the changed names."""
    changed = set()
    for name, function in search.compiled.items():
        edits = FunctionEdits(function)
        _check_sizes(edits, name, search)
        for node in defs.nodes_of(function, LIST_OPS):
            if node.attr["element_dtype"].type != defs.VARIANT:
                _check_list(edits, node)
        if guarded := defs.nodes_of(function, _GUARDED):
            constants = {node.name for node in defs.nodes_of(function, {"Const"})}
            types = defs.Types(function, search.functions)
            for node in guarded:
                if defs.source(node.input[_GUARDED[node.op]]) not in constants:
                    _guard(edits, node, types)
        if edits.write():
            changed.add(name)
    return changed


def _label(search: _Search) -> set[str]:
    """Let ops in functions to compile take hostcall's kernels; return the changed names."""
    changed = set()
    for name, function in search.compiled.items():
        for node in defs.nodes_of(function, {"Where"}):
            if (name, node.name) not in search.blocked:
                op_kinds.take_own_kernel(node)
                changed.add(name)
    return changed


def _check_sizes(edits: FunctionEdits, name: str, search: _Search) -> None:
    """Check the sizes of branches, and those that XLA bounds by a number that only it knows."""
    function = search.compiled[name]
    for node in defs.nodes_of(function, op_kinds.BRANCH_OPS | _SOURCES):
        place = (name, node.name)
        allowed = search.bounded.get(place, set())
        if place in search.blocked:
            continue
        if node.op in op_kinds.BRANCH_OPS:
            _check_results(edits, node, sources.arrays(node), allowed)
        elif place in search.without_bounds:
            _check_results(edits, node, sorted({i for i, _ in allowed}), allowed)


def _check_results(
    edits: FunctionEdits, node: NodeDef, results: Sequence[int], allowed: set[tuple[int, int]]
) -> None:
    """Check some results of a node, of which XLA may bound the `allowed` dimensions."""
    results = [i for i in results if (i, ANY_DIMENSION) not in allowed]
    if not results:
        return
    values = [
        (f"{node.name}:{name}:{i}", dtype)
        for name, types in defs.output_types(node, {}).items()
        for i, dtype in enumerate(types)
    ]
    check = protos.node_def_pb2.NodeDef(
        name=edits.unused(f"{node.name}/sizes"), op=op_kinds.KNOWN_SIZES
    )
    for position, (value, dtype) in enumerate(values[i] for i in results):
        edits.change(value, f"{check.name}:output:{position}")
        check.input.append(value)
        check.attr["T"].list.type.append(dtype)
    check.attr["node"].s = node.name.encode()
    pairs = sorted((results.index(i), dim) for i, dim in allowed if i in results)
    check.attr["bounded"].list.i.extend(n for pair in pairs for n in pair)
    edits.after(node.name, [check])


def _check_list(edits: FunctionEdits, node: NodeDef) -> None:
    check = protos.node_def_pb2.NodeDef(name=edits.unused(f"{node.name}/list"), op=_LIST)
    check.input.append(node.input[0])
    check.attr["dtype"].type = node.attr["element_dtype"].type
    check.attr["user"].s = node.name.encode()
    node.input[0] = f"{check.name}:output:0"
    edits.before(node.name, [check])


def _guard(edits: FunctionEdits, node: NodeDef, types: defs.Types) -> None:
    """Let a node wait for one that refuses operands for which XLA would end the process."""
    alone = function_edits.part_of([node], types)
    result = op_kinds.op_def(node.op).output_arg[0]
    dtype = defs.types_of(node, op_kinds.op_def(node.op), result)[0]
    alone.function.signature.output_arg.add(name="hostcall_result", type=dtype)
    alone.function.ret["hostcall_result"] = f"{node.name}:{result.name}:0"
    guard = protos.node_def_pb2.NodeDef(
        name=edits.unused(f"{node.name}/guard"), op="HostcallGuard", input=alone.taken
    )
    guard.attr["T"].list.type.extend(map(types.of, alone.taken))
    guard.attr["op"].s = alone.function.SerializeToString()
    edits.before(node.name, [guard])
    node.input.append(f"^{guard.name}")


def _rename(functions: Functions, changed: Collection[str], entry: str) -> None:
    """Rename changed functions and their callers, in place; `entry` gets its new name later."""
    new_names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name in functions and name not in new_names:
            new_names[name] = name  # XLA compiles no recursion
            calls = defs.calls_in(functions[name], functions)
            redirected = [defs.redirect(node, functions, renamed) for node in calls]
            if name in changed or any(redirected):
                new_names[name] = name + defs.digest_of_functions([functions[name]])
        return new_names.get(name, name)

    for name in functions if changed else ():
        if renamed(name) != name and name != entry:
            functions[name].signature.name = new_names[name]


# The modulus, a power of two, for which squares of integers never leave the remainders below.
_ENDS = 4096
# The beginning of the selecting nodes' names.
_PREFIX = "hostcall_result"
_NEVER_ENDS = sorted({*range(_ENDS)} - {n * n % _ENDS for n in range(_ENDS)})


def keep_apart(function: FunctionDef, functions: Functions) -> None:
    """Make the bounded results of a compiled function distinct values, in place."""
    # XLA keeps the true sizes of a result in memory behind its elements. If a value is returned
    # twice, XLA copies it for the second result without the sizes, and TensorFlow reads arbitrary
    # sizes there. XLA merges equal values, so it cannot be known in advance which results become
    # one. So each result is selected by a condition of its own. It always holds, but XLA cannot see
    # that: it says that a square does not end in certain binary digits, which no square ends in.
    # XLA must not know the squared number, so the program draws it at random.
    results = [r for r in function.signature.output_arg if r.type not in defs.NO_ARRAYS]
    if len(results) > 1:
        touched = _touched(function, functions)
        fixed = _fixed_results(function)
        values = [(r, function.ret[r.name]) for r in results]
        results = [r for r, value in values if value not in fixed and defs.source(value) in touched]
    if len(results) < 2:
        return
    prefix = _PREFIX
    while any(node.name.startswith(prefix) for node in function.node_def):
        prefix += "_"
    nodes = NodeWriter(prefix)
    number = _opaque_number(nodes)
    for i, result in enumerate(results):
        value = function.ret[result.name]
        ends = nodes.add("Mul", number, number, T=defs.INT32)
        ends = nodes.add("BitwiseAnd", ends, nodes.constant(_ENDS - 1, defs.INT32), T=defs.INT32)
        other = nodes.constant(_NEVER_ENDS[i % len(_NEVER_ENDS)], defs.INT32)
        holds = nodes.add("NotEqual", ends, other, T=defs.INT32)
        zeros = nodes.add("ZerosLike", value, T=result.type)
        function.ret[result.name] = nodes.add("SelectV2", holds, value, zeros, T=result.type)
    function.node_def.extend(nodes.nodes)


def join_again(function: FunctionDef) -> None:
    """Undo `keep_apart`, in place, so that a cluster can be divided again."""
    added = {n.name: n for n in function.node_def if n.name.startswith(f"{_PREFIX}_")}

    def joined(value: str) -> str:
        choice = added.get(defs.source(value))
        return value if choice is None or choice.op != "SelectV2" else choice.input[1]

    defs.edit_results(function, joined)
    kept = [node for node in function.node_def if node.name not in added]
    del function.node_def[:]
    function.node_def.extend(kept)


def _opaque_number(nodes: NodeWriter) -> str:
    """Add an int32 scalar that XLA cannot know: an argument may be a constant of the program."""
    scalar = nodes.constant([], defs.INT32, [0])
    drawn = nodes.add("RandomUniform", scalar, T=defs.INT32, dtype=defs.FLOAT)
    for seed in ("seed", "seed2"):  # deterministic mode refuses random ops without seeds
        nodes.nodes[-1].attr[seed].i = 1
    drawn = nodes.add("Mul", drawn, nodes.constant(1e9, defs.FLOAT), T=defs.FLOAT)
    return nodes.add("Cast", drawn, SrcT=defs.FLOAT, DstT=defs.INT32)


def _touched(function: FunctionDef, functions: Mapping[str, Any]) -> set[str]:
    """Return the nodes that bounded sizes may reach."""
    found = {node.name for node in function.node_def if _is_source(node, functions, set())}
    if found:
        for node in defs.program_order(function):
            taken = (defs.source(value) for value in node.input if not value.startswith("^"))
            if any(name in found for name in taken):
                found.add(node.name)
    return found


def _fixed_results(function: FunctionDef) -> set[str]:
    """Return the results of script ops whose sizes are known, handles among them."""
    fixed: set[str] = set()
    for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
        noted = {result for result, _ in protos.pairs(node, attributes.PREDICTED)}
        count = len(node.attr["Tout"].list.type)
        fixed.update(f"{node.name}:output:{i}" for i in range(count) if i not in noted)
    for node in defs.program_order(function):
        if node.op in op_kinds.IDENTITIES:
            values = enumerate(node.input)
            fixed.update(f"{node.name}:output:{i}" for i, value in values if value in fixed)
    return fixed


def _is_source(node: NodeDef, functions: Mapping[str, Any], seen: set[str]) -> bool:
    if protos.pairs(node, attributes.PREDICTED):
        return True
    names = [n for n in defs.called_functions(node, functions) if n in functions and n not in seen]
    seen.update(names)
    return any(_is_source(n, functions, seen) for name in names for n in functions[name].node_def)
