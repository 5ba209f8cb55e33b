"""EagerTensors, tapes and eager mode, also for callbacks that need eager mode on their thread."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from hostcall._tf import features, script_op_graphs
from hostcall._tf.graph import op_kinds
from hostcall._tf.types import Operation
from hostcall_runtime import _library, _patching
from hostcall_runtime._threads import ThreadCall

# Tape residuals of calls. TensorFlow's keys are tokens (bytes), hostcall's are handles.
tape_cache: dict[Any, Any] = features.tape_cache if features.GRADIENTS.available else {}
building = threading.local()
is_trainable = features.is_trainable


def with_gradient(function: Callable[..., Any], tensors: Iterable[Any]) -> list[Any]:
    """Return the results of a function of `tf.custom_gradient`, which its graphs own."""
    results = list(tf.custom_gradient(function)(*tensors))
    if results and not tf.executing_eagerly():
        _own_custom_gradient(results[0].op)
    return results


def _own_custom_gradient(op: Operation) -> None:
    """Make the gradient of a `tf.custom_gradient` op die with its graphs, not with the process."""
    if not features.CUSTOM_GRADIENTS.available:
        return
    name = op.get_attr("_gradient_op_type").decode()
    entries = features.custom_gradients
    function = entries[name][features.CUSTOM_TYPE_TAG]
    reference: Callable[[], Any] = weakref.ref(function)
    entries[name] = {
        **entries[name],
        features.CUSTOM_TYPE_TAG: lambda op, *upstream: reference()(op, *upstream),
    }
    weakref.finalize(function, entries.pop, name, None).atexit = False
    script_op_graphs.own(function)


# Tell whether tapes are stopped on this thread (as while TensorFlow runs a function), restart them,
# stop them, and tell whether there are none. All are in C, so no signal handler runs in them.
has_no_tapes = features.has_no_tapes
tapes_are_stopped = features.tapes_are_stopped
recording_functions = (tapes_are_stopped, features.restart_tapes, features.stop_tapes, has_no_tapes)


def gradient_is_overridden() -> bool:
    """Return whether a `tf.Graph.gradient_override_map` around names EagerPyFunc."""
    if features.executing_eagerly():
        return False
    return op_kinds.EAGER_PY_FUNC in features.get_default_graph()._gradient_override_map


@contextlib.contextmanager
def resumed(tape: tf.GradientTape) -> Iterator[None]:
    """Make a GradientTape that has ended record again inside the context."""
    tape._push_tape()
    try:
        yield
    finally:
        tape._pop_tape()


def watch(tape: tf.GradientTape, tensors: Iterable[Any]) -> None:
    """Make a tape record the ops on those of the tensors that may have a gradient."""
    for tensor in filter(is_trainable, tensors):
        if features.QUICK_GRADIENTS.available and type(tensor) is features.EagerTensor:
            features.watch_tensor(tape._tape, tensor)
        else:
            tape.watch(tensor)


def gradients(
    tape: tf.GradientTape, targets: list[Any], sources: list[Any], upstream: list[Any]
) -> list[Any]:
    """Return the gradients of `tape.gradient`, with zeros for unconnected sources."""
    # `tape.gradient` looks for nested structures, which costs more than a small function's
    # gradient. The tape has ended; `targets` and `sources` are tensors or variables.
    zero = tf.UnconnectedGradients.ZERO
    values = (*targets, *sources, *upstream)
    is_flat = all(type(value) is features.EagerTensor for value in values)
    if not features.QUICK_GRADIENTS.available or not is_flat or tape._recording:
        return list(tape.gradient(targets, sources, upstream, zero))
    return list(features.imperative_grad(tape._tape, targets, sources, upstream, sources, zero))


def orders_recorded(tensors: Sequence[tf.Tensor]) -> int:
    """Return how many orders of derivative can be asked of an op that runs eagerly on `tensors`."""
    # TensorFlow tells only whether there are one or several tapes; three orders stand for several.
    # They also stand for a ForwardAccumulator, since it differentiates the gradient.
    if not features.NESTED_GRADIENTS.available:
        return 1
    if features.pack_tangents(tensors).tangents:
        return 3
    possible = features.possible_gradient_types(tensors)
    if possible == features.NO_GRADIENT:
        return 0
    return 1 if possible == features.FIRST_ORDER else 3


def more_orders_may_follow() -> bool:
    """Return whether TensorFlow is building a function's gradient for several nested tapes."""
    return getattr(building, "higher_order", False)


_wanted: list[bool] = []
_ours: list[Any] = []


def refuse() -> None:
    """Give XlaCallModule a gradient that raises an error, unless TensorFlow has a gradient."""
    _wanted[:] = [True]
    if _patching.are_installed() and features.GRADIENTS.available:
        _install()


def patch() -> _patching.Patch:
    """Return the entry in the table of patches; it installs nothing before `refuse` is called."""
    return _patching.Patch(
        'tensorflow.python.framework.ops.gradient_registry["XlaCallModule"]',
        _install,
        _uninstall,
        _entry,
        "TensorFlow has no gradient of the op by which hostcall.load runs programs, and its "
        "message does not say what to do. Ours is registered when hostcall.load is first called.",
        features.GRADIENTS.title,
    )


def _entry() -> object:
    return features.py_function_gradients.get(op_kinds.XLA_CALL_MODULE)


def _install() -> None:
    if _wanted and _entry() is None:
        tf.RegisterGradient(op_kinds.XLA_CALL_MODULE)(_refuse)
        _ours[:] = [_entry()]


def _uninstall() -> None:
    if _ours and _entry() is _ours[0]:
        del features.py_function_gradients[op_kinds.XLA_CALL_MODULE]
    _ours.clear()


def _refuse(*_: Any) -> NoReturn:
    raise LookupError(
        "hostcall: a gradient is asked for through a program that has none, by TensorFlow's op "
        "XlaCallModule; hostcall.load makes such ops of exported programs. Export a function that "
        "computes the gradient, too; or, where none is needed, put tf.stop_gradient around the "
        "arguments."
    )


EagerTensor = features.EagerTensor
ResourceVariable = features.ResourceVariable
eager_mode = features.eager_mode
is_async = features.is_async
ensure_initialized = features.ensure_initialized
executing_eagerly = features.executing_eagerly
convert_to_tensor = features.convert_to_tensor  # without the cost of dispatch


def wait_for_ops() -> None:
    """Wait for the ops that eager code has started, if eager execution is asynchronous."""
    if is_async():
        features.context().sync_executors()


def device_in_scope() -> str:
    """Return the full device name of the innermost `tf.device` in eager code; "" without one."""
    return str(features.context().device_name or "")


def as_array(tensor: tf.Tensor) -> np.ndarray:
    """Return the array of an EagerTensor, over the tensor's own memory, for reading only."""
    array: np.ndarray = tensor._numpy()
    return array


def to_eager_tensor(value: object) -> tf.Tensor:
    """Return an EagerTensor of an array that no other code writes to; share memory if possible."""
    ctx = features.context()
    ctx.ensure_initialized()
    return features.convert_to_eager_tensor(value, ctx, None)


def copy_of(array: Any, dtype: tf.DType) -> tf.Tensor:
    """Return an EagerTensor with a copy of a NumPy array that other code may still write to."""
    # The tensor has the dtype of the array; `dtype` is the expected one.
    if array.dtype == dtype.as_numpy_dtype and not device_in_scope() and has_cpus_alone():
        tensor = _copy_on_cpu()(array, dtype.as_datatype_enum)
        if tensor is not None:
            return tensor
    return to_eager_tensor(array)


@functools.cache
def _copy_on_cpu() -> Callable[[Any, int], Any]:
    """Return what makes a tensor on a CPU, or None, from an array and the number of its dtype."""
    copy: Callable[[Any, int], Any] = _library.load("hostcall._tensorflow").copy_of_array
    return copy


@functools.cache
def has_cpus_alone() -> bool:
    """Return whether all devices are CPUs, so that tensors without a named device are on a CPU."""
    return {device.device_type for device in tf.config.list_logical_devices()} == {"CPU"}


def another(tensor: Any) -> tf.Tensor:
    """Return another EagerTensor with the values of one; it runs no op, which others may hook."""
    # The name is without the job, which changes when a process joins a cluster.
    return tensor._copy_to_device("/" + tensor.backing_device.rpartition("/")[2])


def over_array(array: object, dtype: tf.DType) -> tf.Tensor:
    """Return an EagerTensor that takes over an array, on the innermost `tf.device`."""
    ctx = features.context()
    ctx.ensure_initialized()
    return features.EagerTensor(array, ctx.device_name, dtype.as_datatype_enum)


def copy_to_device(tensor: tf.Tensor, device: str | None) -> tf.Tensor:
    """Return an EagerTensor on the device of the kernel that returns it; None is the CPU."""
    name = device or "/job:localhost/replica:0/task:0/device:CPU:0"
    with features.device(device):
        return features.copy_to_context_device(tensor, name)


def apart(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run `function(*args, **kwargs)` in eager mode, where its tapes record; return its result."""
    # It runs on another thread if this one builds a graph, or if TensorFlow has stopped recording
    # on this one, as while it runs a function. A tape would silently record nothing there.
    if executing_eagerly() and not tapes_are_stopped():
        return function(*args, **kwargs)
    return ThreadCall(functools.partial(function, *args, **kwargs)).result()
