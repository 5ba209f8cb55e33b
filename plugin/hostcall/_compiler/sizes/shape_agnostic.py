"""Results of unknown shape that any shape fits: unused ones, and those used for their elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hostcall._compiler import route_selection
from hostcall._ops import lookup, result_contract, shape_demands
from hostcall._ops.array_specs import NativeSpec
from hostcall._ops.structures import BoundedSpec
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime._errors import LoweringError

# Ops that use the elements of an operand and their order, but not its shape.
_TAKE_ELEMENTS = frozenset({"Reshape", "Size"})


def record(library: FunctionDefLibrary, entry: str) -> None:
    """Record on script ops, in place, which of their results are shape-agnostic."""
    for node, results in _shape_agnostic(library, entry):
        protos.set_pairs(node, attributes.SHAPE_AGNOSTIC_RESULTS, sorted(results.items()))


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

        def same_elements(value: str) -> Iterator[str]:
            for node, _ in self._takers.get(value, ()):
                if node.op in shape_demands.ELEMENTWISE:
                    yield f"{node.name}:{_result_name(node)}:0"

        def is_of_elements(value: str) -> bool:
            return value not in self._returned and all(
                index == 0 and node.op in shape_demands.ELEMENTWISE | _TAKE_ELEMENTS
                for node, index in self._takers.get(value, ())
            )

        return all(map(is_of_elements, reach([value], same_elements)))


def _result_name(node: NodeDef) -> str:
    return str(op_kinds.op_def(node.op).output_arg[0].name)
