"""Where sizes that are only bounded go in a program, and which op there XLA may get wrong.

A forward analysis: function by function, node by node, calls, branches and loops included.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hostcall._compiler.bounded.elementwise_rules import Site
from hostcall._compiler.bounded.inferred_shapes import Inferred, argument_shapes
from hostcall._compiler.bounded.op_table import RULES
from hostcall._compiler.bounded.sizes import Shape, Source, Symbol, Tensor, UnprovenError, join
from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

_BRANCH_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_LOOP_OPS = frozenset({"While", "StatelessWhile"})

# Their results have sizes that only the run tells, whatever they take.
DYNAMIC_OPS = frozenset({"Where", "XlaSetDynamicDimensionSize"})

_NOT_LISTED = "it is not known to be right there"
_ROUNDS = 20  # of loops, until what is known of their variables holds

# Makes a symbol of the number of a result, a dimension, and the bound where it is known.
SymbolMaker: TypeAlias = Callable[[int, int, int | None], Symbol]
# For a script op, by its place and NodeDef, and its operands: the shapes of its results; None where
# no size of them is bounded.
Results: TypeAlias = Callable[
    [Source, Any, Sequence[Tensor], SymbolMaker], list[Shape | None] | None
]


@dataclasses.dataclass(frozen=True)
class Offence:
    """A bounded size reaches an op that is not known to be right with it.

    Attributes:
      function, node, op: the op's function, name and kind.
      reason: what about it is not known.
      sources: where the bounded sizes come from.
    """

    function: str
    node: str
    op: str
    reason: str
    sources: frozenset[Source]


class Flow:
    """The way of bounded sizes through a program.

    Args:
      functions: FunctionDefs by name.
      results: what is known of the results of a script op; see `Results`.
      constants: the positions of a node's operands that XLA has to know when it compiles.

    Attributes:
      offences: what has been found, each once.
      bounded: for each script op in the program, the (result, dimension)s that may be bounded.
    """

    def __init__(
        self,
        functions: Mapping[str, Any],
        results: Results,
        constants: Callable[[Any], Sequence[int]],
    ) -> None:
        self._functions = functions
        self._results = results
        self._constants = constants
        self._matter: dict[str, bool] = {}
        self.offences: dict[Source, Offence] = {}
        self.bounded: dict[Source, set[tuple[int, int]]] = {}

    def run(self, entry: str) -> None:
        """Follows the program that begins with a function, whose arguments have fixed sizes."""
        shapes = argument_shapes(self._functions[entry])
        self._function(entry, entry, [Tensor(shape) for shape in shapes])

    def _function(self, name: str, path: str, arguments: Sequence[Tensor]) -> list[Tensor]:
        """What is known of the results of a call."""
        function = self._functions[name]
        shapes = [
            known if given.shape is None and not given.tainted else given.shape
            for given, known in zip(arguments, argument_shapes(function), strict=True)
        ]
        body = _Body(self, function, path, Inferred(function, shapes, self._functions))
        names = [argument.name for argument in function.signature.input_arg]
        given = [
            dataclasses.replace(argument, shape=shape)
            for argument, shape in zip(arguments, shapes, strict=True)
        ]
        return body.run(dict(zip(names, given, strict=True)))

    def called(
        self, node: NodeDef, function: str, path: str, operands: list[Tensor], count: int
    ) -> list[Tensor]:
        """What is known of the results of a node that calls functions."""
        try:
            if node.op in _LOOP_OPS:
                return self._loop(node, path, operands)
            if node.op in _BRANCH_OPS:
                return self._branches(node, path, operands)
            if node.op in self._functions:
                return self._function(node.op, path, operands)
            if node.op in defs.CALL_OPS:
                return self._function(node.attr["f"].func.name, path, operands)
            raise UnprovenError(_NOT_LISTED)
        except UnprovenError as error:
            return self.offend(node, function, operands, str(error), [None] * count)

    def _branches(self, node: NodeDef, path: str, operands: list[Tensor]) -> list[Tensor]:
        found = [
            self._function(callee.name, f"{path}:{i}", operands[1:])
            for i, callee in enumerate(defs.callees(node))
        ]
        chosen = operands[0]
        return [
            _depending_on(join(values, _symbols(path, i)), chosen)
            for i, values in enumerate(zip(*found, strict=True))
        ]

    def _loop(self, node: NodeDef, path: str, operands: list[Tensor]) -> list[Tensor]:
        state = operands
        for _ in range(_ROUNDS):
            after = self._function(node.attr["body"].func.name, f"{path}:body", state)
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
        """Whether a node is, or leads to, one whose results may have sizes that are bounded."""
        if node.op in op_kinds.SCRIPT_OPS or node.op in DYNAMIC_OPS:
            return True
        return any(map(self._function_matters, defs.called_functions(node, self._functions)))

    def _function_matters(self, name: str) -> bool:
        if name not in self._matter:
            self._matter[name] = False
            self._matter[name] = any(map(self.matters, self._functions[name].node_def))
        return self._matter[name]

    def script_op(
        self, node: NodeDef, function: str, path: str, operands: list[Tensor]
    ) -> list[Tensor] | None:
        """What is known of the results of a script op; None where no size of it is bounded."""

        def symbol(result: int, dim: int, bound: int | None) -> Symbol:
            return Symbol((path, result, dim), bound)

        source = (function, node.name)
        shapes = self._results(source, node, operands, symbol)
        if shapes is None:
            return None
        bounded = self.bounded.setdefault(source, set())
        found = []
        for index, shape in enumerate(shapes):
            dims = [d for d, n in enumerate(shape or ()) if isinstance(n, Symbol)]
            bounded.update((index, dim) for dim in dims)
            tainted = bool(dims) or shape is None
            sources = frozenset({source} if tainted else ())
            found.append(Tensor(shape, None, tainted, sources))
        return found

    def op(self, site: Site, function: str, operands: list[Tensor]) -> list[Tensor]:
        """What is known of the results of an op that takes what bounded sizes have a part in."""
        try:
            rule = RULES.get(site.node.op)
            if rule is not None:
                results = rule(site, operands)
            elif any(operand.bounded for operand in operands):
                raise UnprovenError(_NOT_LISTED)
            elif any(operands[i].tainted for i in self._constants(site.node)):
                raise UnprovenError("it takes a size, which XLA would have to know")
            else:
                results = site.fixed()
        except UnprovenError as error:
            return self.offend(site.node, function, operands, str(error), site.shapes)
        sources = frozenset[Source]().union(*(operand.sources for operand in operands))
        return [dataclasses.replace(r, tainted=True, sources=sources) for r in results]

    def offend(
        self,
        node: NodeDef,
        function: str,
        operands: Sequence[Tensor],
        reason: str,
        shapes: Sequence[Shape | None],
    ) -> list[Tensor]:
        """Notes an op, and says of its results what holds once its operands have fixed sizes."""
        sources = frozenset[Source]().union(*(operand.sources for operand in operands))
        if sources:
            key = (function, node.name)
            known = self.offences.get(key)
            if known is not None:
                sources |= known.sources
            self.offences[key] = Offence(function, node.name, node.op, reason, sources)
            return [Tensor(shape) for shape in shapes]
        return [Tensor(None, None, True) for _ in shapes]  # a size that TensorFlow's own op made


class _Body:
    """One call of a function."""

    def __init__(self, flow: Flow, function: FunctionDef, path: str, inferred: Inferred) -> None:
        self._flow = flow
        self._function = function
        self._name = function.signature.name
        self._path = path
        self._inferred = inferred
        self._known: dict[str, list[Tensor]] = {}

    def run(self, arguments: Mapping[str, Tensor]) -> list[Tensor]:
        """What is known of the results."""
        self._known = {name: [value] for name, value in arguments.items()}
        for node in defs.program_order(self._function):
            inputs = [self._value(value) for value in node.input if not value.startswith("^")]
            self._known[node.name] = self._node(node, inputs)
        results = self._function.signature.output_arg
        return [self._value(self._function.ret[result.name]) for result in results]

    def _value(self, value: str) -> Tensor:
        name, index = self._inferred.position(value)
        return self._known[name][index]

    def _node(self, node: NodeDef, operands: list[Tensor]) -> list[Tensor]:
        flow, path = self._flow, f"{self._path}/{node.name}"
        tainted = any(operand.tainted for operand in operands)
        if not tainted and not flow.matters(node):
            return self._fixed(node, operands)
        if node.op in op_kinds.SCRIPT_OPS:
            return flow.script_op(node, self._name, path, operands) or self._fixed(node, operands)
        count = self._inferred.count(node.name)
        if defs.called_functions(node, flow._functions):
            return flow.called(node, self._name, path, operands, count)
        shapes = [self._inferred.shape(node.name, i) for i in range(count)]
        return flow.op(Site(node, path, shapes), self._name, operands)

    def _fixed(self, node: NodeDef, operands: list[Tensor]) -> list[Tensor]:
        """The results of a node that has nothing to do with bounded sizes."""
        count = self._inferred.count(node.name)
        shapes = [self._inferred.shape(node.name, i) for i in range(count)]
        contents = [self._inferred.contents(node.name, i) for i in range(count)]
        if any(known is not None and None in known for known in contents):
            # TensorFlow knows of constants, and the rules also of what is worked out from them.
            with contextlib.suppress(UnprovenError):
                site = Site(node, self._path, shapes)
                found = RULES[node.op](site, operands) if node.op in RULES else []
                contents = [result.contents for result in found] or contents
        return [Tensor(*known) for known in zip(shapes, contents, strict=True)]


def _symbols(path: str, result: int) -> Callable[[int], Symbol]:
    return lambda dim: Symbol((path, result, dim))


def _depending_on(value: Tensor, other: Tensor) -> Tensor:
    """A value whose elements depend on another one's."""
    if not other.tainted:
        return value
    return dataclasses.replace(value, tainted=True, sources=value.sources | other.sources)
