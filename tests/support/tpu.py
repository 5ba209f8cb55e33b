"""A process that compiles for TPUs, as far as hostcall can tell."""

import pytest

from hostcall._tf.graph import op_kinds
from hostcall._tf.types import NodeDef


def compile_for_tpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has XLA compile for TPUs what it compiles for the CPU, but for calls of the host."""
    on_cpu = op_kinds.has_xla_kernel

    def has_xla_kernel(node: NodeDef, device_type: str = "CPU") -> bool:
        if device_type == "TPU" and node.op in op_kinds.SCRIPT_OPS:
            return False
        return on_cpu(node)

    monkeypatch.setattr(op_kinds, "has_xla_kernel", has_xla_kernel)
