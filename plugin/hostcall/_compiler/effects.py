"""Which functions reach an op that has side effects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from hostcall._tf import function_defs as defs
from hostcall._tf import op_kinds
from hostcall._tf.types import NodeDef


class Effects:
    """What is known of the side effects of some functions.

    Args:
      functions: FunctionDefs by name.
      of_op: whether an op has some itself, by its NodeDef. If left out: some that happen in the
        order of the program.
      ops: the types of the ops that may have some.
    """

    def __init__(
        self,
        functions: Mapping[str, Any],
        of_op: Callable[[Any], bool] = op_kinds.is_ordered,
        ops: Collection[str] = op_kinds.ORDERED_OPS,
    ) -> None:
        self._functions = functions
        self._of_op = of_op
        self._ops = ops
        self._found: dict[str, bool] = {}

    def of_function(self, name: str) -> bool:
        """Whether a function reaches such an op."""
        if name not in self._found:
            self._found[name] = False  # what a function that calls itself finds
            function = self._functions.get(name)
            self._found[name] = function is not None and (
                any(map(self._of_op, defs.nodes_of(function, self._ops)))
                or any(map(self.of_callees, defs.calls_in(function, self._functions)))
            )
        return self._found[name]

    def of_callees(self, node: NodeDef) -> bool:
        """Whether what a node calls does."""
        return any(map(self.of_function, defs.called_functions(node, self._functions)))

    def of_node(self, node: NodeDef) -> bool:
        """Whether a node has effects, or what it calls."""
        return self._of_op(node) or self.of_callees(node)

    def chain(self, function: Any) -> Any | None:
        """Add a control edge from each node that has effects to the next; return the last one.

        Tracing leaves them out before a loop or a branch that uses a variable. There are none
        between the loops and branches of TensorFlow 1, nor out of them.

        Args:
          function: a FunctionDef, changed in place.
        """
        previous = None
        if defs.has_frames(function):
            return previous
        for node in defs.program_order(function):
            if self.of_node(node):
                if previous is not None and f"^{previous.name}" not in node.input:
                    node.input.append(f"^{previous.name}")
                previous = node
        return previous
