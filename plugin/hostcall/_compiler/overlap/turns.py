"""Calls without side effects that run one at a time, since the user does not say otherwise."""

from __future__ import annotations

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._tf import op_kinds
from hostcall._tf.types import NodeDef


def takes_turns(node: NodeDef) -> bool:
    """Whether a node is a script op with such calls. Native code runs beside anything."""
    if not op_kinds.has_no_effect(node):
        return False
    spec = lookup.spec_of(node)
    if spec is None or spec.custom_call != CallbackSpec.custom_call:
        return False
    return not spec.is_concurrent
