"""Windows: strided slices between positions that only the run knows, such as `x[i : i + 3]`.

XLA does not cut these positions to the tensor, as TensorFlow does: past the end it gives a window
elements that are not there. So the positions are cut before XLA takes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hostcall._compiler.analyses.sizes import Size, Source, Tensor, UnprovenError
from hostcall._compiler.semantics.slices import OP
from hostcall._compiler.semantics.values import Writer
from hostcall._compiler.sizes.rules import Site, check_fixed, shape_of
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.graph.function_edits import FunctionEdits
from hostcall._tf.types import Functions, NodeDef

OF_DATA = "its sizes depend on data, and XLA bounds them at best"


def makes_sizes(node: NodeDef, operands: Sequence[Tensor]) -> bool:
    """Return whether a slice has an end that only the run knows, and not just elements."""
    strides = operands[3].contents
    if strides is None:
        return True
    for mask, ends in zip(("begin", "end"), operands[1:3], strict=True):
        given = {*range(len(strides))} - _positions(
            node, mask, "ellipsis", "new_axis", "shrink_axis"
        )
        known = ends.contents
        if ends.varies and any(known is None or known[i] is None for i in given):
            return True
    return False


def sizes(site: Site, operands: Sequence[Tensor]) -> list[Tensor]:
    """Infer the shape of a window in dimensions of fixed sizes, by steps of 1."""
    strides = operands[3].contents
    if strides is None or {*strides} != {1} or site.number("new_axis_mask"):
        raise UnprovenError(OF_DATA)
    found: dict[int, Size] = dict(enumerate(shape_of(operands[0])))
    whole = _positions(site.node, "begin", "ellipsis") & _positions(site.node, "end", "ellipsis")
    for position, dim in enumerate(dims(site.node, operands)):
        if position in whole:
            continue
        check_fixed(found[dim])
        if position in _positions(site.node, "shrink_axis"):
            del found[dim]
        else:
            size = found[dim]
            found[dim] = site.symbol(dim, size if isinstance(size, int) else None)
    return [Tensor(tuple(found.values()))]


def dims(node: NodeDef, operands: Sequence[Tensor]) -> list[int]:
    """Return the dimensions that the positions of a window are of; any one for an ellipsis."""
    rank, count = len(operands[0].shape or ()), len(operands[3].contents or ())
    first = min(_positions(node, "ellipsis"), default=count)
    return [0 if i == first else i if i < first else i + rank - count for i in range(count)]


def _positions(node: NodeDef, *masks: str) -> set[int]:
    """Return the positions that one of some masks names."""
    bits = [protos.integer(node, f"{mask}_mask") for mask in masks]
    return {i for mask in bits for i in range(mask.bit_length()) if mask >> i & 1}


def keep_within(functions: Functions, places: Mapping[Source, list[int]]) -> set[str]:
    """Cut windows to their tensors, at places with their `dims`; return the changed functions."""
    changed = set()
    for name, function in functions.items():
        edits = FunctionEdits(function)
        for node in defs.nodes_of(function, {OP}):
            if (name, node.name) in places:
                edits.before(node.name, _Cut(node, places[name, node.name]).write())
        if edits.write():
            changed.add(name)
    return changed


class _Cut(Writer):
    """A writer of the positions of a window."""

    def __init__(self, node: NodeDef, dims: list[int]) -> None:
        super().__init__(node)
        self._dims = dims
        self._index = node.attr["Index"].type

    def write(self) -> list[NodeDef]:
        """Let the node take positions within its tensor; return the nodes that compute them."""
        sizes, zero = self._sizes(), self.constant(0, self._index)
        begin, end = (self._wrapped(position, sizes, zero) for position in self.inputs[1:3])
        begin = self._chosen(zero, begin, "begin")
        end = self._add("Maximum", end, begin)
        for i, cut in enumerate((begin, end), 1):
            # Of an element, TensorFlow takes the position as it is.
            self.node.input[i] = self._chosen(self.inputs[i], cut, "shrink_axis")
        return self.nodes

    def _add(self, op: str, *inputs: str) -> str:
        return self.add(op, *inputs, T=self._index)

    def _sizes(self) -> str:
        """Write the sizes of the dimensions that the positions are of."""
        shape = self.add("Shape", self.inputs[0], T=self.node.attr["T"].type, out_type=self._index)
        dims = self.constant(self._dims, defs.INT32)
        axis = self.constant(0, defs.INT32)
        types = {"Tparams": self._index, "Tindices": defs.INT32, "Taxis": defs.INT32}
        return self.add("GatherV2", shape, dims, axis, **types)

    def _wrapped(self, position: str, sizes: str, zero: str) -> str:
        """Write positions that count from the start, within the tensor."""
        from_end = self._add("AddV2", position, sizes)
        is_negative = self._add("Less", position, zero)
        wrapped = self._add("SelectV2", is_negative, from_end, position)
        return self._add("Minimum", self._add("Maximum", wrapped, zero), sizes)

    def _chosen(self, chosen: str, others: str, mask: str) -> str:
        """Write a vector of one value at the positions of a mask, and of another one elsewhere."""
        positions = _positions(self.node, mask)
        if not positions:
            return others
        flags = self.constant([i in positions for i in range(len(self._dims))], defs.BOOL)
        return self._add("SelectV2", flags, chosen, others)
