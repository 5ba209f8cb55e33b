"""The handlers of JAX's custom calls, in TensorFlow's XLA: jaxlib's (LAPACK), and the user's.

A program of JAX's calls them by name. They are registered here when the first program needs them:
when `to_tf` makes one, or when a saved one is loaded. XLA refuses handlers that were built with a
newer version of its FFI than its own, as jaxlib's are. But such a handler reads the same call
frame, and calls the same functions. So relays of ours, in csrc/tensorflow/relays.cc, pass the call
on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hostcall._tf.graph import op_kinds
from hostcall._tf.types import NodeDef
from hostcall_runtime import _library, _locks

# On an op that holds a program of JAX's: the targets of its custom calls, one a line.
TARGETS = "_hostcall_targets"

# The newest version of the FFI whose binary interface was compared with that of the oldest, 0.1. In
# all of them, what a handler without a state takes, returns and calls has the same layout.
_COMPARED = (0, 5)

_DUPLICATE = "Duplicate FFI handler registration"  # XLA's words
_OWN = "hostcall"  # what the targets of hostcall's own calls begin with

_registered: set[str] = set()
_lock = _locks.new_lock()


def provide(targets: Collection[str]) -> tuple[str, ...]:
    """Register the handlers that JAX has of these custom calls; return those that it has.

    Raise a NotImplementedError if TensorFlow's XLA cannot call one. Targets that JAX does not have
    may be TensorFlow's own.
    """
    wanted = {target for target in targets if not target.startswith(_OWN)}
    if not wanted <= _registered:
        from hostcall_mlir.exporting import jaxlib_names  # slow to import, and few need it

        handlers = jaxlib_names.ffi_handlers()
        jaxlib_names.prepare_handlers(wanted)
        with _lock:
            for target in sorted(wanted - _registered):
                if target in handlers:
                    _register(target, handlers[target])
    return tuple(sorted(wanted & _registered))


def targets_of(node: NodeDef) -> list[str]:
    """Return the targets of the custom calls of the program in an op whose handlers are JAX's."""
    if node.op != op_kinds.XLA_CALL_MODULE or TARGETS not in node.attr:
        return []
    return str(node.attr[TARGETS].s.decode(errors="replace")).split("\n")


def _register(target: str, stages: dict[str, Any]) -> None:
    tensorflow = _library.load("hostcall._tensorflow")
    for handler in stages.values():
        if wrong := _complaint(tensorflow, handler):
            raise NotImplementedError(
                f"hostcall: the program makes the custom call {target!r}, whose handler "
                f"TensorFlow's XLA cannot call: {wrong}"
            )
    try:
        tensorflow.register_relayed(stages, target)
    except ImportError as error:
        if _DUPLICATE not in str(error):  # the user has registered it in TensorFlow, too
            raise
    _registered.add(target)


def _complaint(tensorflow: Any, handler: object) -> str:
    """Return the reason why TensorFlow's XLA cannot call a handler, or ""."""
    try:
        _, major, minor, makes_state = tensorflow.describe_handler(handler)
    except (TypeError, ValueError) as error:
        return f"it does not tell the version of XLA's FFI that it was built with ({error})."
    own = ".".join(map(str, tensorflow.ffi_api_version()))
    if (major, minor) > _COMPARED or major != _COMPARED[0]:
        known = ".".join(map(str, _COMPARED))
        return (
            f"it was built with version {major}.{minor} of XLA's FFI. TensorFlow's has {own}, and "
            f"hostcall knows that handlers of versions up to {known} can be called there. Install "
            "a JAX that it was tested with: docs/versions.md lists them."
        )
    if makes_state:
        return (
            f"it makes a state when a program is compiled, and handlers of version {major}.{minor} "
            f"of XLA's FFI keep a state in another way than TensorFlow's {own}. Register one for "
            "the stage of execution alone."
        )
    return ""
