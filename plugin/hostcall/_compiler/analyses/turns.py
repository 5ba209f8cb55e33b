"""Which calls of Python have no side effects, and which of them are made one at a time."""

from __future__ import annotations

from hostcall._ops import lookup
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import AnyNode


def takes_turns(node: AnyNode) -> bool:
    """Return whether a node makes calls without effects one at a time; native code may overlap."""
    spec = spec_without_effect(node)
    return spec is not None and not spec.user.is_concurrent


def spec_without_effect(node: AnyNode) -> CallbackSpec | None:
    """Return the spec of a node that calls Python without side effects; else None."""
    spec = lookup.spec_of(node) if op_kinds.has_no_effect(node) else None
    return spec if spec is not None and spec.custom_call == CallbackSpec.custom_call else None
