"""Forward analysis that follows bounded sizes to the ops that XLA may get wrong with them.

It goes function by function and node by node, through calls, branches and loops.

XLA pads tensors of bounded size. Some of its ops, and some of TensorFlow's lowerings to them,
ignore the padding. The table of ops (`ops.py`) has a rule for the sizes of each op that heeds it,
which raises an UnprovenError where the op is not proven right. tests/e2e/test_bounded_ops.py proves
each op, and fails for an op without a proof.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from hostcall._compiler.analyses import loops
from hostcall._compiler.analyses.sizes import (
    Inferred,
    Shape,
    Source,
    Symbol,
    Tensor,
    UnprovenError,
    argument_shapes,
    has_symbol,
    join,
    without_symbols,
)
from hostcall._compiler.ops import OPS
from hostcall._compiler.semantics import slices
from hostcall._compiler.sizes import rules, sources, windows
from hostcall._compiler.sizes.rules import Rule, Site
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

RULES: Mapping[str, Rule] = {name: getattr(rules, op.sizes) for name, op in OPS.items() if op.sizes}

_NOT_LISTED = "it is not known to be right there"
_AT_MOST_ONE = "XLA takes a size that is at most 1 for 1 in some ops"
_ROUNDS = 20  # passes over a loop, within which the facts about its variables must settle
ANY_DIMENSION = -1  # of a result of unknown rank

# Makes a symbol from the number of a result, a dimension, and the bound if it is known.
SymbolMaker: TypeAlias = Callable[[int, int, int | None], Symbol]
# Gives the shapes of a script op's results, by its place, NodeDef and operands; None if no size of
# them is bounded.
Results: TypeAlias = Callable[
    [Source, Any, Sequence[Tensor], SymbolMaker], list[Shape | None] | None
]


@dataclasses.dataclass(frozen=True)
class Offence:
    """An op that a bounded size reaches and that is not known to be right with it."""

    # The op's function, name and kind.
    function: str
    node: str
    op: str
    reason: str  # the property of the op that is not known
    sources: frozenset[Source]  # the origins of the bounded sizes; the op itself, if it makes them
    shapes: tuple[Shape | None, ...] = ()  # the shapes of its results, as TensorFlow knows them
    calls: bool = False  # whether the op calls functions


class Flow:
    """The paths of bounded sizes through a program."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        results: Results,
        hosted: Collection[Source],
        unequal: Collection[Source],
        inferred: dict[Any, Inferred],
    ) -> None:
        self.functions = functions
        self._results = results
        self.hosted = hosted  # ops on the host: XLA knows the sizes of their results
        self.unequal = unequal  # conditionals whose branches return different sizes
        # By functions and the shapes of their arguments. To infer shapes takes longest of all.
        self._inferred = inferred
        self._matter: dict[str, bool] = {}
        self.offences: dict[Source, Offence] = {}  # the offences found, each once
        # For each source and conditional, the (result, dimension)s that may be bounded.
        self.bounded: dict[Source, set[tuple[int, int]]] = {}
        self.without_bounds: set[Source] = set()  # those of them with a bound that is not known
        self.windows: dict[Source, list[int]] = {}  # the windows, with their `dims`

    def run(self, entry: str) -> None:
        """Follow the program that begins with a function, whose arguments have fixed sizes."""
        shapes = argument_shapes(self.functions[entry])
        self._function(entry, entry, [Tensor(shape) for shape in shapes])

    def _function(self, name: str, path: str, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Return the known facts about the results of a call."""
        function = self.functions[name]
        if defs.has_frames(function):
            return self._on_host(function, path)
        shapes = [
            known if given.shape is None and not given.tainted else given.shape
            for given, known in zip(arguments, argument_shapes(function), strict=True)
        ]
        given = zip(function.signature.input_arg, arguments, shapes, strict=True)
        known = {arg.name: [dataclasses.replace(one, shape=s)] for arg, one, s in given}
        key = name, tuple(map(without_symbols, shapes))
        if (inferred := self._inferred.get(key)) is None:
            inferred = self._inferred[key] = Inferred(function, shapes, self.functions)
        return _FunctionFlow(self, function, path, inferred, known).run()

    def _on_host(self, function: FunctionDef, path: str) -> list[Tensor]:
        """Return the known facts about the results of a function that XLA does not compile."""
        for node in function.node_def:
            operands = [Tensor() for value in node.input if not value.startswith("^")]
            self.follow_hosted(node, f"{path}/{node.name}", operands)
        return [Tensor(varies=True) for _ in function.signature.output_arg]

    def follow_hosted(self, node: NodeDef, path: str, operands: list[Tensor]) -> None:
        """Follow the functions that a host op calls, since XLA compiles clusters of them."""
        given = [Tensor(varies=True)] * len(operands[node.op in op_kinds.BRANCH_OPS :])
        for i, name in enumerate(defs.called_functions(node, self.functions)):
            if name in self.functions and self._function_matters(name):
                self._function(name, f"{path}:{i}", given)

    def called(
        self, node: NodeDef, function: str, path: str, operands: list[Tensor], count: int
    ) -> list[Tensor]:
        """Return the known facts about the results of a node that calls functions."""
        try:
            if node.op in op_kinds.LOOP_OPS:
                return self._loop(node, path, operands)
            if node.op in op_kinds.BRANCH_OPS:
                results = self._branches(node, path, operands, (function, node.name))
                _check_bounds(results)
                self._note((function, node.name), results)
                return results
            if node.op in self.functions:
                return self._function(node.op, path, operands)
            if node.op in op_kinds.CALL_OPS:
                return self._function(node.attr["f"].func.name, path, operands)
            raise UnprovenError(_NOT_LISTED)
        except UnprovenError as error:
            return self.offend(node, function, operands, error, [None] * count)

    def _branches(
        self, node: NodeDef, path: str, operands: list[Tensor], own: Source
    ) -> list[Tensor]:
        found = [
            self._function(callee.name, f"{path}:{i}", operands[1:])
            for i, callee in enumerate(defs.callees(node))
        ]
        if own in self.unequal and any(map(_differ_in_rank, zip(*found, strict=True))):
            raise UnprovenError("its branches return results of different ranks")
        chosen = dataclasses.replace(operands[0], varies=True)
        joined = [
            join(values, _symbols(path, i), bounds=own in self.unequal)
            for i, values in enumerate(zip(*found, strict=True))
        ]
        return [_depending_on(_from(own, value), chosen) for value in joined]

    def _loop(self, node: NodeDef, path: str, operands: list[Tensor]) -> list[Tensor]:
        body = self.functions[node.attr["body"].func.name]
        same = loops.invariants(body)
        state = [
            one if i in same else dataclasses.replace(one, varies=True)
            for i, one in enumerate(operands)
        ]
        for _ in range(_ROUNDS):
            after = self._function(body.signature.name, f"{path}:body", state)
            pairs = zip(state, after, strict=True)
            joined = [join(pair, _symbols(path, i)) for i, pair in enumerate(pairs)]
            if joined == state:
                break
            state = joined
        else:
            raise UnprovenError("what it does to sizes is too hard to see")
        (goes_on,) = self._function(node.attr["cond"].func.name, f"{path}:cond", state)
        return [_depending_on(value, goes_on) for value in state]

    def matters(self, node: NodeDef) -> bool:
        """Return whether a node, or a function that it calls, may make bounded sizes."""
        if node.op in op_kinds.SCRIPT_OPS:
            return True
        return any(map(self._function_matters, defs.called_functions(node, self.functions)))

    def _function_matters(self, name: str) -> bool:
        if name not in self._matter:
            self._matter[name] = False
            function = self.functions[name]
            self._matter[name] = (
                any(place[0] == name for place in self.unequal)
                or sources.in_function(function, is_entry=False)
                or any(map(self.matters, function.node_def))
            )
        return self._matter[name]

    def script_op(
        self, node: NodeDef, function: str, path: str, operands: list[Tensor]
    ) -> list[Tensor] | None:
        """Return the known facts about a script op's results, or None if no size is bounded."""
        source = (function, node.name)
        shapes = self._results(source, node, operands, symbol_maker(path))
        if shapes is None:
            return None
        found = []
        for shape in shapes:
            tainted = shape is None or has_symbol(shape)
            found.append(Tensor(shape, None, tainted, frozenset({source} if tainted else ()), True))
        self._note(source, found)
        return found

    def _note(self, source: Source, results: Sequence[Tensor]) -> None:
        """Note which sizes of an op's results may be bounded."""
        noted = self.bounded.setdefault(source, set())
        for index, result in enumerate(results):
            if result.shape is None and result.tainted:
                noted.add((index, ANY_DIMENSION))
            sizes = [(d, n) for d, n in enumerate(result.shape or ()) if isinstance(n, Symbol)]
            noted.update((index, dim) for dim, _ in sizes)
            if any(size.bound is None for _, size in sizes):
                self.without_bounds.add(source)

    def makes_sizes(self, node: NodeDef, operands: Sequence[Tensor]) -> bool:
        """Return whether XLA would make a bounded dimension in a node, whatever sizes it takes."""
        if node.op in sources.ALWAYS:
            return True
        inputs = [operands[i] for i in sources.sizing_operands(node)]
        if not any(operand.varies for operand in inputs):
            return False
        if node.op == "Slice":
            count = inputs[1]
            return count.varies or count.contents is None or -1 in count.contents
        if node.op == slices.OP:
            return windows.makes_sizes(node, operands)
        return True

    def op(self, site: Site, function: str, operands: list[Tensor]) -> list[Tensor]:
        """Return the known facts about the results of an op that bounded sizes affect."""
        own = (function, site.node.name)
        makes_sizes = self.makes_sizes(site.node, operands)
        if makes_sizes:
            given = frozenset({own})
            operands = [dataclasses.replace(o, sources=o.sources | given) for o in operands]
        try:
            results = self._by_rule(site, operands, makes_sizes)
            _check_bounds(results)
        except UnprovenError as error:
            return self.offend(site.node, function, operands, error, site.shapes)
        if makes_sizes:
            self._note(own, results)
            if site.node.op == slices.OP:
                self.windows[own] = windows.dims(site.node, operands)
        found = _sources(operands)
        varies = does_vary(site.node, operands)
        return [dataclasses.replace(r, tainted=True, sources=found, varies=varies) for r in results]

    def _by_rule(self, site: Site, operands: list[Tensor], makes_sizes: bool) -> list[Tensor]:
        rule = RULES.get(site.node.op)
        if makes_sizes and site.node.op == slices.OP:
            return windows.sizes(site, operands)
        if makes_sizes and (rule is None or site.node.op not in sources.ALWAYS):
            raise UnprovenError(windows.OF_DATA)
        if rule is not None:
            return rule(site, operands)
        if any(operand.bounded for operand in operands):
            raise UnprovenError(_NOT_LISTED)
        if any(operands[i].tainted for i in op_kinds.constant_operands(site.node)):
            raise UnprovenError("it takes a size, which XLA would have to know")
        return [Tensor(shape) for shape in site.shapes]

    def offend(
        self,
        node: NodeDef,
        function: str,
        operands: Sequence[Tensor],
        error: UnprovenError,
        shapes: Sequence[Shape | None],
    ) -> list[Tensor]:
        """Note an offence; return the facts that hold once the op's operands have fixed sizes."""
        key = (function, node.name)
        found = _sources(operands) | error.sources
        if key in self.offences:
            found |= self.offences[key].sources
        self.offences[key] = Offence(
            function,
            node.name,
            node.op,
            str(error),
            found or frozenset({key}),
            tuple(shapes),
            bool(defs.called_functions(node, self.functions)),
        )
        return [Tensor(shape, varies=True) for shape in shapes]


@dataclasses.dataclass
class _FunctionFlow:
    """One call of a function."""

    flow: Flow
    function: FunctionDef
    path: str
    inferred: Inferred
    known: dict[str, list[Tensor]]

    def run(self) -> list[Tensor]:
        """Return the known facts about the results."""
        for node in defs.program_order(self.function):
            inputs = [self._value(value) for value in node.input if not value.startswith("^")]
            self.known[node.name] = self._node(node, inputs)
        results = self.function.signature.output_arg
        return [self._value(self.function.ret[result.name]) for result in results]

    def _value(self, value: str) -> Tensor:
        name, index = self.inferred.position(value)
        return self.known[name][index]

    def _node(self, node: NodeDef, operands: list[Tensor]) -> list[Tensor]:
        flow, name, path = self.flow, self.function.signature.name, f"{self.path}/{node.name}"
        tainted = any(operand.tainted for operand in operands)
        if node.op not in op_kinds.SCRIPT_OPS and (name, node.name) in flow.hosted:
            flow.follow_hosted(node, path, operands)
            return [dataclasses.replace(r, varies=True) for r in self._fixed(node, operands)]
        makes_sizes = flow.makes_sizes(node, operands) or (name, node.name) in flow.unequal
        if not tainted and not makes_sizes and not flow.matters(node):
            return self._fixed(node, operands)
        if node.op in op_kinds.SCRIPT_OPS:
            return flow.script_op(node, name, path, operands) or self._fixed(node, operands)
        if defs.called_functions(node, flow.functions):
            return flow.called(node, name, path, operands, self.inferred.count(node.name))
        return flow.op(Site(node, path, self.inferred.shapes(node.name)), name, operands)

    def _fixed(self, node: NodeDef, operands: list[Tensor]) -> list[Tensor]:
        """Return the results of a node that bounded sizes do not affect."""
        shapes = self.inferred.shapes(node.name)
        contents = [self.inferred.contents(node.name, i) for i in range(len(shapes))]
        if any(known is not None and None in known for known in contents):
            # TensorFlow knows constants; the rules also know values that are computed from them.
            with contextlib.suppress(UnprovenError):
                site = Site(node, self.path, shapes)
                found = RULES[node.op](site, operands) if node.op in RULES else []
                contents = [result.contents for result in found] or contents
        varies = does_vary(node, operands)
        return [Tensor(*known, varies=varies) for known in zip(shapes, contents, strict=True)]


def symbol_maker(path: str) -> SymbolMaker:
    """Return the maker of the symbols of an op, by the path to it."""
    return lambda result, dim, bound: Symbol((path, result, dim), bound)


def _symbols(path: str, result: int) -> Callable[[int], Symbol]:
    return lambda dim: Symbol((path, result, dim))


def _check_bounds(results: Iterable[Tensor]) -> None:
    """Raise an UnprovenError if a size is known to be at most 1."""
    sizes = (size for result in results for size in result.shape or ())
    if any(isinstance(size, Symbol) and size.bound == 1 for size in sizes):
        raise UnprovenError(_AT_MOST_ONE)


def _differ_in_rank(values: Sequence[Tensor]) -> bool:
    return len({len(value.shape) for value in values if value.shape is not None}) > 1


def _from(source: Source, value: Tensor) -> Tensor:
    """Return a value whose bounded sizes come from a source if they do from no other one."""
    if value.tainted or not has_symbol(value.shape or ()):
        return value
    return dataclasses.replace(value, tainted=True, sources=frozenset({source}))


def _depending_on(value: Tensor, other: Tensor) -> Tensor:
    """Return a value whose elements depend on those of another one."""
    value = dataclasses.replace(value, varies=value.varies or other.varies)
    if not other.tainted:
        return value
    return dataclasses.replace(value, tainted=True, sources=value.sources | other.sources)


def _sources(operands: Sequence[Tensor]) -> frozenset[Source]:
    return frozenset[Source]().union(*(operand.sources for operand in operands))


def does_vary(node: NodeDef, operands: Sequence[Tensor]) -> bool:
    """Return whether XLA cannot know a node's results when it compiles."""
    if node.op in op_kinds.SHAPE_OPS:
        return False
    definition = op_kinds.op_def_or_none(node.op)
    if definition is None or definition.is_stateful or node.op in sources.OPAQUE_OPS:
        return True
    return any(operand.varies for operand in operands)
