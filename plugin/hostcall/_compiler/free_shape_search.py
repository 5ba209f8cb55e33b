"""Which results of script ops may have any shape, since nothing in a function looks at it.

To be asked of the very function that XLA compiles: a gradient, for one, looks at the shapes of
what no op of the program itself does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostcall._callbacks import free_shapes, lookup, shape_demands
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._callbacks.native_spec import NativeSpec
from hostcall._callbacks.specs import BoundedSpec
from hostcall._compiler import route_selection
from hostcall._tf import op_kinds, protos
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, NodeDef
from hostcall_runtime._errors import LoweringError

# Take the elements, in their order, and no account of the shape.
_TAKE_ELEMENTS = frozenset({"Reshape", "Size"})


def marked(library: FunctionDefLibrary, entry: str) -> Any:
    """A FunctionDefLibrary whose script ops say which of their results have free shapes.

    Args:
      library: is left alone.
      entry: the function that is going to be compiled.

    Returns:
      A copy, or the library itself where there is nothing to say.
    """
    if not any(True for _ in _found(library, entry)):
        return library
    copy = protos.copy_of(library)
    for node, free in _found(copy, entry):
        free_shapes.write(node, free)
    return copy


def _found(library: FunctionDefLibrary, entry: str) -> Iterator[tuple[Any, dict[int, int]]]:
    for function in library.function:
        # Only functions with an order of effects are compiled as copies, in which a mark is seen.
        kinds = op_kinds.STATEFUL_SCRIPT_OPS
        if function.signature.name == entry:
            kinds = op_kinds.SCRIPT_OPS
        nodes = [node for node in function.node_def if node.op in kinds]
        wanted = [(node, spec) for node in nodes if (spec := _asks(node)) is not None]
        if wanted:
            uses = _Uses(function)
            for node, spec in wanted:
                if free := _free_results(node, spec, uses):
                    yield node, free


def _asks(node: NodeDef) -> CallbackSpec | None:
    """The spec of a script op that has a result of unknown shape, and could do without one."""
    try:
        spec = lookup.spec_of(node)
    except LoweringError:  # which the lowering tells the user of
        return None
    if spec is None or isinstance(spec, NativeSpec) or spec.declaration.shares_memory:
        return None
    known = route_selection.known_results(spec, node)
    if any(isinstance(one, BoundedSpec) for one in known):
        return None
    return spec if route_selection.unknown_results(spec, known) else None


def _free_results(node: NodeDef, spec: CallbackSpec, uses: _Uses) -> dict[int, int]:
    known = route_selection.known_results(spec, node)
    free = {}
    for index in route_selection.unknown_results(spec, known):
        value = f"{node.name}:{_result_name(node)}:{index}"
        count = spec.element_counts[index] if index < len(spec.element_counts) else None
        if uses.none_of(value):
            free[index] = free_shapes.UNUSED
        elif count is not None and uses.are_of_elements(value):
            free[index] = count
    return free


def _result_name(node: NodeDef) -> str:
    name: str = op_kinds.op_def(node.op).output_arg[0].name
    return name


class _Uses:
    """Who takes the values of a FunctionDef: XLA compiles the nodes that do not run, too."""

    def __init__(self, function: FunctionDef) -> None:
        self._returned = set(function.ret.values())
        self._takers: dict[str, list[tuple[Any, int]]] = {}
        for node in function.node_def:
            for index, value in enumerate(node.input):
                self._takers.setdefault(value, []).append((node, index))

    def none_of(self, value: str) -> bool:
        """Whether nothing takes a value."""
        return value not in self._returned and value not in self._takers

    def are_of_elements(self, value: str) -> bool:
        """Whether all that take a value take its elements alone."""
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
