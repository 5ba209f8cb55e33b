"""Keeps sizes that are only bounded away from the ops that XLA may get wrong there.

A *source* is an op whose results have such sizes (`sources.py`). They may reach ops that are not
known to be right with them (`flow.py`). Then the source is a host op, so that XLA knows the size
when it compiles what comes after it; or the other op is, where that costs less. Where all must be
in one program, that is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hostcall._compiler import node_places, replaced_ops, route_selection
from hostcall._compiler.bounded import (
    callback_sizes,
    compile_time_checks,
    own_names,
    sources,
    unequal_branches,
)
from hostcall._compiler.bounded.flow import Flow, Offence
from hostcall._compiler.bounded.sizes import Shape, Source, Symbol, Tensor
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf import function_defs as defs
from hostcall._tf.types import FunctionDefLibrary, Functions, NodeDef
from hostcall_runtime import _library
from hostcall_runtime._errors import LoweringError

_AT_RISK = "a size that only the run knows, {of}, is only bounded in a compiled program: {reason}"
_STUCK = (
    "hostcall: op '{op}' ({kind}) takes a size that is only bounded, and nothing keeps it "
    "from that. This is a bug in hostcall; please report it."
)
_TAKES_SIZES = "it takes a size that is only bounded in a compiled program: {reason}"


def marked(
    library: FunctionDefLibrary, entry: str, whole: bool = False, compiled: bool = False
) -> Any:
    """Mark the ops that shall be on the host for the sizes that they make or take.

    Args:
      library: a FunctionDefLibrary, which is left alone.
      entry: the function that is going to be compiled.
      whole: whether nothing of it can be on the host.
      compiled: whether XLA gets the very functions that are returned. Then what only XLA can tell,
        whether branches return equal sizes, is checked there; and functions that change have other
        names.

    Returns:
      A copy.
    """
    copy = protos.copy_of(library)
    search = _Search(copy, entry, _nothing if whole else route_selection.is_on_host)
    search.run()
    for name, function in search.functions.items():
        _mark(name, function, search)
    if compiled:
        checked = set[str]()
        if search.has(compile_time_checks.KINDS):
            checked = compile_time_checks.add(search.compiled, search.bounded, search.hindered)
        own_names.give(search.functions, search.replaced | checked, entry)
    return copy


def find(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find what hinders a function from being one program, by the names of function and op.

    Args:
      library: a FunctionDefLibrary.
      entry: the function that is going to be compiled, as a whole.
    """
    search = _Search(protos.copy_of(library), entry, _nothing)
    search.run()
    return search.hindered


def at_risk(library: FunctionDefLibrary, entry: str) -> dict[Source, str]:
    """Find the ops that XLA may get wrong where nothing is done about it.

    Args:
      library: a FunctionDefLibrary.
      entry: a function that is compiled as a whole.

    Returns:
      What may be wrong, by the names of function and op.
    """
    search = _Search(protos.copy_of(library), entry, _nothing)
    return search.at_risk()


def _mark(name: str, function: Any, search: _Search) -> None:
    """Mark the nodes of a function that are found."""
    found = {n for places in (search.hindered, search.bounded) for f, n in places if f == name}
    nodes = defs.nodes_of(function, op_kinds.SCRIPT_OPS)
    if found:
        nodes += [node for node in function.node_def if node.name in found]
    for node in nodes:
        place = (name, node.name)
        if place in search.hindered:
            node.attr[attributes.HINDERED].s = search.hindered[place].encode()
        else:
            dims = sorted(search.bounded.get(place, ()))
            numbers = protos.integer_list([n for pair in dims for n in pair])
            node.attr[attributes.FORESEEN].list.CopyFrom(numbers)


class _Search:
    """What there is to know of the sizes in a program.

    Args:
      library: a FunctionDefLibrary; ops in it that XLA gets wrong are written in others.
      entry: the function that is going to be compiled.
      is_on_host: whether a script op is not, by its NodeDef.

    Attributes:
      functions: those that the entry reaches, by name.
      compiled: those of them that XLA may get.
      hindered: what hinders ops from being in the program, in words.
      bounded: of other sources, the (result, dimension)s whose size may be bounded.
      replaced: the functions in which ops are written in others.
    """

    def __init__(
        self, library: FunctionDefLibrary, entry: str, is_on_host: Callable[[Any], bool]
    ) -> None:
        self.functions = defs.reachable(library, entry)
        self.compiled = {n: f for n, f in self.functions.items() if not defs.has_frames(f)}
        # Most functions have nothing of what is looked for below.
        self._kinds = {n.op for function in self.functions.values() for n in function.node_def}
        self._entry = entry
        self._is_on_host = is_on_host
        self._bindings = _library.load("hostcall._tensorflow")
        self._constants = functools.partial(op_kinds.constant_operands, self._bindings)
        self.hindered: dict[Source, str] = {}
        self.bounded: Mapping[Source, set[tuple[int, int]]] = {}
        self.replaced: set[str] = set()

    def run(self) -> None:
        """Fill in the attributes."""
        if self.has(replaced_ops.TABLE):
            self.replaced |= replaced_ops.replace(self.compiled)
        if self.has(op_kinds.BRANCH_OPS):
            self.hindered.update(unequal_branches.find(self.functions))
        if not self._any_may_be_bounded():
            return
        self.replaced |= replaced_ops.replace_ones_like(self.compiled)
        loops = _Loops(self.functions, self._entry)
        while offences := self._offences():
            known = len(self.hindered)
            # The results of these have sizes that XLA knows: there may be more to say of others.
            for source, hindering in _by_source(offences).items():
                self._put_on_host(source, hindering, loops)
            if len(self.hindered) == known:
                raise LoweringError(_STUCK.format(op=offences[0].node, kind=offences[0].op))

    def has(self, kinds: Collection[str]) -> bool:
        """Tell whether there is an op of one of some kinds."""
        return not self._kinds.isdisjoint(kinds)

    def at_risk(self) -> dict[Source, str]:
        """See the function of this name."""
        found = unequal_branches.find(self.functions)
        offences = self._offences() if self._any_may_be_bounded() else []
        for offence in offences:
            place = (offence.function, offence.node)
            others = sorted(f"'{n}' ({self._node((f, n)).op})" for f, n in offence.sources)
            of = f"that of {', '.join(others)}" if place not in offence.sources else "its own"
            found.setdefault(place, _AT_RISK.format(of=of, reason=offence.reason))
        return found

    def _offences(self) -> list[Offence]:
        """Follow the sizes that are left, and note them."""
        flow = Flow(self.functions, self._results, self._constants, self.hindered)
        flow.run(self._entry)
        self.bounded = flow.bounded
        return [*flow.offences.values()]

    def _put_on_host(self, source: Source, offences: list[Offence], loops: _Loops) -> None:
        """Choose between a source and the ops that it hinders."""
        is_script_op = self._node(source).op in op_kinds.SCRIPT_OPS
        limit = loops.around(source[0])
        if all(
            self._has_no_kernel(offence)
            or (
                not is_script_op
                and _ends_sizes(offence, source)
                and loops.around(offence.function) <= limit
            )
            for offence in offences
        ):
            for offence in offences:
                reason = _TAKES_SIZES.format(reason=offence.reason)
                self.hindered.setdefault((offence.function, offence.node), reason)
            return
        self.hindered.setdefault(source, _reason(offences[0], source, self.functions))

    def _node(self, source: Source) -> Any:
        return next(n for n in self.functions[source[0]].node_def if n.name == source[1])

    def _has_no_kernel(self, offence: Offence) -> bool:
        """Whether an op is on the host whatever it takes."""
        node = self._node((offence.function, offence.node))
        if offence.calls or node.op in op_kinds.SCRIPT_OPS:
            return False
        return not op_kinds.has_xla_kernel(self._bindings, node)

    def _results(self, source: Source, node: NodeDef, *rest: Any) -> list[Shape | None] | None:
        on_host = source in self.hindered or self._is_on_host(node)
        return None if on_host else callback_sizes.results(node, *rest)

    def _any_may_be_bounded(self) -> bool:
        """Whether a size of some result may be bounded, for what script ops take or might take."""
        if any(
            sources.in_function(function, name == self._entry, self._constants)
            for name, function in self.functions.items()
        ):
            return True
        taken = Tensor()
        if not self.has(op_kinds.SCRIPT_OPS):
            return False
        for name, function in self.functions.items():
            for node in defs.nodes_of(function, op_kinds.SCRIPT_OPS):
                operands = [taken] * len(node.attr["Tin"].list.type)
                if self._results((name, node.name), node, operands, _any_symbol) is not None:
                    return True
        return False


class _Loops:
    """How many loops are around each function of a program."""

    def __init__(self, functions: Functions, entry: str) -> None:
        self._around = {entry: 0}
        pending = [entry]
        while pending:
            name = pending.pop()
            for node in defs.calls_in(functions[name], functions):
                around = self._around[name] + (node.op in op_kinds.LOOP_OPS)
                for called in defs.called_functions(node, functions):
                    if called in functions and self._around.get(called, -1) < around:
                        self._around[called] = around
                        pending.append(called)

    def around(self, function: str) -> int:
        """The most loops that a function runs inside of."""
        return self._around.get(function, 0)


def _by_source(offences: Iterable[Offence]) -> dict[Source, list[Offence]]:
    found: dict[Source, list[Offence]] = {}
    for offence in offences:
        for source in sorted(offence.sources):
            found.setdefault(source, []).append(offence)
    return found


def _ends_sizes(offence: Offence, source: Source) -> bool:
    """Whether an op, on the host, leaves no size that XLA would have to compile anew for."""
    if (offence.function, offence.node) == source or offence.op in op_kinds.SCRIPT_OPS:
        return False
    return not offence.calls and all(
        shape is not None and None not in shape for shape in offence.shapes
    )


def _nothing(_: Any) -> bool:
    return False


def _any_symbol(result: int, dim: int, bound: int | None) -> Symbol:
    return Symbol(("", result, dim), bound)


def _reason(offence: Offence, source: Source, functions: Functions) -> str:
    if (offence.function, offence.node) == source:
        return f"the size of its results is only bounded in a compiled program: {offence.reason}"
    place = node_places.find(functions, offence.function, offence.node, offence.op)
    where = f" at {place}" if place else ""
    return (
        f"a size of its results is only bounded and reaches op '{offence.node}' ({offence.op})"
        f"{where}, which XLA may get wrong: {offence.reason}"
    )
