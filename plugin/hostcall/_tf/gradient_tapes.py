"""What TensorFlow records for gradients, and how many orders of them may be asked for."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop_util as _backprop_util
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import forwardprop_util as _forwardprop_util
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import registry as _registry
from tensorflow.python.ops import gradients_util as _gradients_util

from hostcall._tf import graph_ownership, op_kinds

# What calls keep for their gradients. TensorFlow's keys are tokens (bytes), ours are numbers.
tape_cache = op_kinds.script_ops.tape_cache
building = threading.local()
is_trainable = _backprop_util.IsTrainable


def own_custom_gradient(op: Any) -> None:
    """Lets the gradient of an op that `tf.custom_gradient` has made die with the op's graphs.

    TensorFlow's registry would hold it for ever, and the graph with it.
    """
    name = op.get_attr("_gradient_op_type").decode()
    entries = _ops.gradient_registry._registry
    function = entries[name][_registry._TYPE_TAG]
    reference: Callable[[], Any] = weakref.ref(function)
    entries[name] = {
        **entries[name],
        _registry._TYPE_TAG: lambda op, *upstream: reference()(op, *upstream),
    }
    weakref.finalize(function, entries.pop, name, None).atexit = False
    graph_ownership.own(function)


# Whether tapes do not record on this thread, as while TensorFlow runs a function; how to let them,
# and to stop them again; whether there are none. All in C: no signal's handler runs in them.
has_no_tapes = pywrap_tfe.TFE_Py_TapeSetIsEmpty
tapes_are_stopped = pywrap_tfe.TFE_Py_TapeSetIsStopped
recording_functions = (
    tapes_are_stopped,
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread,
    pywrap_tfe.TFE_Py_TapeSetStopOnThread,
    has_no_tapes,
)


def gradient_is_overridden() -> bool:
    """Whether a py_function that is created now has another gradient than EagerPyFunc's.

    That is so within a `tf.Graph.gradient_override_map` which names it.
    """
    if _context.executing_eagerly():
        return False
    return op_kinds.EAGER_PY_FUNC in _ops.get_default_graph()._gradient_override_map


@contextlib.contextmanager
def resumed(tape: Any) -> Iterator[None]:
    """Lets a GradientTape that has ended record once more."""
    tape._push_tape()
    try:
        yield
    finally:
        tape._pop_tape()


def orders_recorded(tensors: Any) -> int:
    """How many orders of derivative an op that runs eagerly on `tensors` may be asked for.

    TensorFlow tells one tape from several and no more; three orders stand for several. A
    ForwardAccumulator differentiates the gradient.
    """
    if _forwardprop_util.pack_tangents(tensors).tangents:
        return 3
    possible = _gradients_util.PossibleTapeGradientTypes(tensors)
    if possible == _gradients_util.POSSIBLE_GRADIENT_TYPES_NONE:
        return 0
    return 1 if possible == _gradients_util.POSSIBLE_GRADIENT_TYPES_FIRST_ORDER else 3


def more_orders_may_follow() -> bool:
    """Whether TensorFlow is building the gradient of a function for several nested tapes."""
    return getattr(building, "higher_order", False)
