"""Which functions reach ops with side effects, or ops of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import AnyNode, FunctionDef


class Effects:
    """The functions that reach ops of types `ops`, or any, of which `of_op` is true if given."""

    def __init__(
        self,
        functions: Mapping[str, Any],
        of_op: Callable[[Any], bool] | None = op_kinds.is_ordered,
        ops: Collection[str] | None = op_kinds.ORDERED_OPS,
    ) -> None:
        self._functions = functions
        self._ops = ops
        self._of_op = of_op or (lambda node: ops is None or node.op in ops)
        self._found: dict[str, bool] = {}

    def of_function(self, name: str) -> bool:
        """Return whether a function reaches an op with side effects."""
        if name not in self._found:
            self._found[name] = False  # ends the recursion for a function that calls itself
            function = self._functions.get(name)
            self._found[name] = function is not None and (
                any(map(self._of_op, self._nodes(function)))
                or any(map(self.of_callees, defs.calls_in(function, self._functions)))
            )
        return self._found[name]

    def _nodes(self, function: Any) -> Iterable[Any]:
        return function.node_def if self._ops is None else defs.nodes_of(function, self._ops)

    def of_callees(self, node: AnyNode) -> bool:
        """Return whether a function that a node calls has side effects."""
        return any(map(self.of_function, defs.called_functions(node, self._functions)))

    def of_node(self, node: AnyNode) -> bool:
        """Return whether a node or a function that it calls has side effects."""
        return self._of_op(node) or self.of_callees(node)

    def chain(self, function: FunctionDef) -> Any | None:
        """Add a control edge from each node with side effects to the next; return the last node."""
        # Tracing leaves these edges out before a loop or a branch that uses a variable. The loops
        # and branches of TensorFlow 1 allow no edges between them or out of them.
        previous = None
        if defs.has_frames(function):
            return previous
        for node in defs.program_order(function):
            if self.of_node(node):
                if previous is not None and f"^{previous.name}" not in node.input:
                    node.input.append(f"^{previous.name}")
                previous = node
        return previous
