"""The time of a cluster's nodes by TensorFlow's kernels, beside that of a launch.

A launch of a compiled program takes as long as some fifteen of TensorFlow's kernels on little data.
What a program saves beyond that is memory traffic: it fuses ops, so that most values are never
written. So nodes that are few, with results that are small, are left to TensorFlow's kernels.

Some ops take XLA much longer than TensorFlow. They are left to TensorFlow, too.

The rules use only what is known before the function runs. Equal functions get equal clusters, and
their results have equal bits from run to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hostcall._compiler.analyses.sizes import Inferred, argument_shapes, product
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import FunctionDef, NodeDef

# Ops that cost less than starting a compiled program.
TRIVIAL_OPS = op_kinds.IDENTITIES | {
    *("EnsureShape", "ExpandDims", "NoOp", "PreventGradient", "ReadVariableOp", "Reshape"),
    *("Shape", "Squeeze", "StopGradient"),
}

# Microseconds, of `make bench ONLY=partition` on two cores of a server.
LAUNCH = 50.0
KERNEL = 3.0
ELEMENT = 0.0005  # an element that one op writes and another reads
# The kernels with results of unknown size that are left to TensorFlow. XLA would save two passes
# over the data, which TensorFlow's kernels do on all cores.
FEW = 3

# Ops that XLA computes at least four times slower than TensorFlow on a CPU, on data of some size.
_SLOW = frozenset(
    {"Cholesky", "DepthwiseConv2dNative", "LowerBound", "MaxPoolGrad", "NonMaxSuppressionV3"}
    | {"NonMaxSuppressionV4", "SelfAdjointEigV2", "Svd", "UpperBound"}
)
_IS_SLOW = "XLA's kernel takes much longer than TensorFlow's"
_SOME_SIZE = 4096  # elements of a result, below which the launch of one more cluster costs more


class Costs:
    """The costs of the nodes of a function."""

    def __init__(
        self, function: FunctionDef, functions: Mapping[str, Any], accelerator: bool = False
    ) -> None:
        self._function = function
        self._functions = functions
        # Its kernels are launches, too, and values would have to cross to the CPU.
        self._accelerator = accelerator
        self._inferred: Inferred | None = None

    def pays(self, nodes: Iterable[NodeDef]) -> bool:
        """Return whether a cluster of some nodes saves more time than its launch takes."""
        kernels = [node for node in nodes if node.op not in TRIVIAL_OPS]
        if not kernels or self._accelerator:
            return bool(kernels)
        if len(kernels) * KERNEL > LAUNCH or not all(map(self._may_be_on_host, kernels)):
            return True
        elements = [self._elements(node.name) for node in kernels]
        known = [count for count in elements if count is not None]
        if len(elements) - len(known) > FEW:
            return True
        between = sum(known) - max(known, default=0)
        return len(kernels) * KERNEL + between * ELEMENT > LAUNCH

    def slow_ops(self) -> dict[str, str]:
        """Return the nodes whose work on the host is worth one more launch, with the reason."""
        nodes = [] if self._accelerator else defs.nodes_of(self._function, _SLOW)
        return {node.name: _IS_SLOW for node in nodes if self._is_slow(node)}

    def _is_slow(self, node: NodeDef) -> bool:
        elements = self._elements(node.name)
        return op_kinds.has_kernel(node) and (elements is None or elements >= _SOME_SIZE)

    def _may_be_on_host(self, node: NodeDef) -> bool:
        """Return whether TensorFlow's kernel does the same work as a program."""
        if node.op in op_kinds.SCRIPT_OPS or defs.called_functions(node, self._functions):
            return False
        if "Random" in node.op or node.op.startswith("Stateless"):
            return False  # XLA draws other numbers
        if defs.handles(node, defs.VARIANT, self._functions):
            return False  # lists cannot leave a program
        definition = op_kinds.op_def_or_none(node.op)
        if definition is None or not op_kinds.has_kernel(node):
            return False
        return not definition.is_stateful or defs.handles(node, defs.RESOURCE, self._functions)

    def _elements(self, node: str) -> int | None:
        """Return the number of elements of a node's results; None if it is not known."""
        if self._inferred is None:
            shapes = argument_shapes(self._function)
            self._inferred = Inferred(self._function, shapes, self._functions)
        shapes = self._inferred.shapes(node)
        counts = [None if shape is None else product(shape) for shape in shapes]
        known = [count for count in counts if isinstance(count, int)]
        return sum(known) if len(known) == len(counts) else None
