"""The search for ops that bounded sizes put on the host.

A *source* is an op whose results have bounded sizes (`sources.py`). `flow.py` follows these sizes
to ops that are not known to be right with them. The source then becomes a host op, so that XLA
knows the size when it compiles the ops after it. The other op becomes a host op instead if that
costs less. If all ops must be in one program, that is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from hostcall._compiler.analyses import node_places
from hostcall._compiler.analyses.sizes import Inferred, Shape, Source, Tensor
from hostcall._compiler.semantics import slices
from hostcall._compiler.sizes import sources, stand_ins
from hostcall._compiler.sizes.flow import Flow, Offence, symbol_maker
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.graph.solver import solve
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, NodeDef
from hostcall_runtime._errors import LoweringError

_AT_RISK = "a size that only the run knows, {of}, is only bounded in a compiled program: {reason}"
_STUCK = (
    "hostcall: op '{op}' ({kind}) takes a size that is only bounded, and nothing keeps it "
    "from that. This is a bug in hostcall; please report it."
)
# Advice on how to replace ops whose sizes depend on data.
_INSTEAD = {slices.OP: "; for a constant size write tf.slice(x, [begin], [size])"}
_TAKES_SIZES = "it takes a size that is only bounded in a compiled program: {reason}"


def _never(_: NodeDef) -> bool:
    """Return that a script op is not on the host."""
    return False


class Search:
    """A search for bounded sizes in a program, and for the ops that may get them."""

    def __init__(
        self,
        library: FunctionDefLibrary,
        entry: str,
        is_on_host: Callable[[Any], bool] = _never,
    ) -> None:
        # The functions that the entry reaches, by name.
        self.functions: dict[str, FunctionDef] = defs.reachable(library, entry)
        # Python's object of a node is made for each look, unless there is one.
        self._nodes = [(name, n) for name, f in self.functions.items() for n in f.node_def]
        # Most functions hold none of the ops that the search looks for.
        self._kinds = {node.op for _, node in self._nodes}
        # The script ops, each behind the name of its function.
        self.script_ops = [each for each in self._nodes if each[1].op in op_kinds.SCRIPT_OPS]
        # The functions that XLA may get.
        self.compiled = self.functions
        if self.has(op_kinds.FRAME_OPS):
            self.compiled = {n: f for n, f in self.functions.items() if not defs.has_frames(f)}
        self._entry = entry
        self._is_on_host = is_on_host
        self.blocked: dict[Source, str] = {}  # the reasons why ops cannot be in the program
        # For other sources, the (result, dimension)s whose size may be bounded.
        self.bounded: Mapping[Source, set[tuple[int, int]]] = {}
        self.without_bounds: AbstractSet[Source] = frozenset()  # those whose bounds only XLA knows
        self._windows: Mapping[Source, list[int]] = {}  # as `Flow` finds them
        self._inferred: dict[Any, Inferred] = {}  # the same in each round of `Flow`

    @functools.cached_property
    def unequal(self) -> Collection[Source]:
        """The conditionals whose branches return different sizes."""
        has_any = self.has(op_kinds.BRANCH_OPS)
        return sources.find_unequal_branches(self.functions) if has_any else ()

    def run(self) -> None:
        """Put ops on the host until the other ones are right with the sizes that they get."""
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

    @property
    def windows(self) -> dict[Source, list[int]]:
        """The windows in the program that are to be cut to their tensors, with their dimensions."""
        return {at: dims for at, dims in self._windows.items() if at not in self.blocked}

    def find_risks(self) -> dict[Source, str]:
        """Find the ops that XLA may get wrong as the program stands, with the reasons."""
        found: dict[Source, str] = {}
        offences = self._offences() if self.any_may_be_bounded() else []
        for offence in offences:
            place = (offence.function, offence.node)
            others = sorted(f"'{n}' ({self._node((f, n)).op})" for f, n in offence.sources)
            of = f"that of {', '.join(others)}" if place not in offence.sources else "its own"
            found.setdefault(place, _AT_RISK.format(of=of, reason=offence.reason))
        return found

    def _offences(self) -> list[Offence]:
        """Follow the remaining bounded sizes, and note them."""
        flow = Flow(self.functions, self._results, self.blocked, self.unequal, self._inferred)
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
        if source in self.blocked:
            return None
        found = stand_ins.results_of(node, *rest)  # nearly always None, and sooner known
        return None if found is None or self._is_on_host(node) else found

    def any_may_be_bounded(self) -> bool:
        """Return whether some result may have a bounded size, whatever script ops take."""
        if self.unequal or any(
            sources.in_function(function, name == self._entry)
            for name, function in self.functions.items()
        ):
            return True
        for name, node in self.script_ops:
            operands = [Tensor()] * len(node.attr["Tin"].list.type)
            if self._results((name, node.name), node, operands, symbol_maker("")) is not None:
                return True
        return False


def _loops_around(functions: Functions, entry: str) -> dict[str, int]:
    """Return the largest number of loops that each function of a program runs inside of."""
    around = {entry: 0}

    def pass_on(name: str) -> Iterator[str]:
        for node in defs.calls_in(functions[name], functions):
            loops = around[name] + (node.op in op_kinds.LOOP_OPS)
            for called in defs.called_functions(node, functions):
                if called in functions and around.get(called, -1) < loops:
                    around[called] = loops
                    yield called

    solve([entry], pass_on)
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
