"""What TensorFlow records for gradients, and how many orders of them may be asked for."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from hostcall._tf import features, graph_ownership, names, op_kinds
from hostcall._tf.types import Operation

# What calls keep for their gradients. TensorFlow's keys are tokens (bytes), ours are handles.
tape_cache: dict[Any, Any] = names.tape_cache if features.GRADIENTS.available else {}
building = threading.local()
is_trainable = names.is_trainable


def own_custom_gradient(op: Operation) -> None:
    """Lets the gradient of an op that `tf.custom_gradient` has made die with the op's graphs.

    TensorFlow's registry would hold it for ever, and the graph with it.
    """
    if not features.CUSTOM_GRADIENTS.available:
        return
    name = op.get_attr("_gradient_op_type").decode()
    entries = names.custom_gradients
    function = entries[name][names.CUSTOM_TYPE_TAG]
    reference: Callable[[], Any] = weakref.ref(function)
    entries[name] = {
        **entries[name],
        names.CUSTOM_TYPE_TAG: lambda op, *upstream: reference()(op, *upstream),
    }
    weakref.finalize(function, entries.pop, name, None).atexit = False
    graph_ownership.own(function)


# Whether tapes do not record on this thread, as while TensorFlow runs a function; how to let them,
# and to stop them again; whether there are none. All in C: no signal's handler runs in them.
has_no_tapes = names.has_no_tapes
tapes_are_stopped = names.tapes_are_stopped
recording_functions = (
    tapes_are_stopped,
    names.restart_tapes,
    names.stop_tapes,
    has_no_tapes,
)


def gradient_is_overridden() -> bool:
    """Whether a py_function that is created now has another gradient than EagerPyFunc's.

    That is so within a `tf.Graph.gradient_override_map` which names it.
    """
    if names.executing_eagerly():
        return False
    return op_kinds.EAGER_PY_FUNC in names.get_default_graph()._gradient_override_map


@contextlib.contextmanager
def resumed(tape: tf.GradientTape) -> Iterator[None]:
    """Lets a GradientTape that has ended record once more."""
    tape._push_tape()
    try:
        yield
    finally:
        tape._pop_tape()


def watch(tape: tf.GradientTape, tensors: Iterable[Any]) -> None:
    """Has a tape record what is done with those tensors that may have a gradient."""
    for tensor in filter(is_trainable, tensors):
        if features.QUICK_GRADIENTS.available and type(tensor) is names.EagerTensor:
            names.watch_tensor(tape._tape, tensor)
        else:
            tape.watch(tensor)


def gradients(
    tape: tf.GradientTape, targets: list[Any], sources: list[Any], upstream: list[Any]
) -> list[Any]:
    """What `tape.gradient` returns, zeros where nothing flows back.

    That looks for nested structures, which takes longer than the gradient of a small function.

    Args:
      tape: one that has ended.
      targets: tensors, or variables.
      sources: the same.
      upstream: the gradients of the targets: tensors.
    """
    zero = tf.UnconnectedGradients.ZERO
    values = (*targets, *sources, *upstream)
    is_flat = all(type(value) is names.EagerTensor for value in values)
    if not features.QUICK_GRADIENTS.available or not is_flat or tape._recording:
        return list(tape.gradient(targets, sources, upstream, zero))
    found = names.imperative_grad(tape._tape, targets, sources, upstream, sources, zero)
    return list(found)


def orders_recorded(tensors: Sequence[tf.Tensor]) -> int:
    """How many orders of derivative an op that runs eagerly on `tensors` may be asked for.

    TensorFlow tells one tape from several and no more; three orders stand for several. A
    ForwardAccumulator differentiates the gradient.
    """
    if not features.NESTED_GRADIENTS.available:
        return 1
    if names.pack_tangents(tensors).tangents:
        return 3
    possible = names.possible_gradient_types(tensors)
    if possible == names.NO_GRADIENT:
        return 0
    return 1 if possible == names.FIRST_ORDER else 3


def more_orders_may_follow() -> bool:
    """Whether TensorFlow is building the gradient of a function for several nested tapes."""
    return getattr(building, "higher_order", False)
