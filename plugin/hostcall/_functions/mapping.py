"""`hostcall.map`: calls that are divided among the workers of an executor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hostcall._functions import source_location
from hostcall._functions.callback import Callback
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native_code import NativeCode
from hostcall._functions.options import check_function
from hostcall_runtime import _executors, _mapped_calls
from hostcall_runtime._mapped_calls import MappedFunction


def mapped(
    fn: Callable[..., Any],
    *,
    executor: Any = None,
    in_axes: Any = 0,
    chunks: int | None = None,
) -> Any:
    """Divide the calls of a function among the workers of an executor.

    The leading axis of the arguments is divided into chunks. The function is called once for each
    chunk, at the same time if there are enough workers, and the results are concatenated along
    their first axis. So the function takes a part of a batch, of any size. It must return the same
    for each element as it would for the whole batch.

    Args:
      fn: a function of arrays, or a `hostcall.Callback` of kind "numpy". A gradient that is a
        `Callback` is divided, too; TensorFlow or JAX code computes it for the whole batch. Each
        call gets arrays of its own. The calls of a stateful function run once each, in any order.
      executor: the executor of the calls, as in `hostcall.declare`. It may be left out if one is
        declared for `fn`.
      in_axes: the axis along which the arguments are divided, as in `jax.vmap`: a number for all,
        or a tuple with an entry for each argument: a number, None for an argument that each call
        gets whole, or a structure of these like that of the argument. Arrays that are passed by
        keyword are divided along their first axis.
      chunks: the number of chunks of a batch; None for as many as the executor has workers. A batch
        with fewer elements has fewer chunks, and an empty one has one. Chunk sizes differ by one at
        most.

    Returns:
      A function that is called with whole batches: NumPy arrays, or structures of them. It may be
      passed to `tf.numpy_function`, `hostcall.declare`, `hostcall.callback` and `hostcall.jax.call`
      like any other. For a `Callback`, another `Callback`. A note on an exception names the chunk
      that raised it; by then the other chunks have ended, or they never begin.

    Raises:
      TypeError: when `fn` is not callable, there is no executor, or `in_axes` holds something else.
      ValueError: when `chunks` is no positive number, `in_axes` divides nothing, or `fn` is native
        code, or a `Callback` that takes tensors or borrows arrays. Also when the arguments of a
        call lack the axis or differ in size along it, or the results have no first axis.
      hostcall.ExecutorError: when the executor does not make a call.

    Examples:
      >>> pool = concurrent.futures.ThreadPoolExecutor(2)
      >>> cumulate = hostcall.map(lambda x: np.cumsum(x, axis=1), executor=pool)
      >>> cumulate(np.arange(6.0).reshape(3, 2))
      array([[0., 1.],
             [2., 5.],
             [4., 9.]])
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return tf.numpy_function(cumulate, [x], tf.TensorSpec([3, 2], tf.float32))
      >>> program(tf.ones([3, 2])).numpy()
      array([[1., 2.],
             [1., 2.],
             [1., 2.]], dtype=float32)
    """
    check_function(fn, "hostcall.map")
    _mapped_calls.check_axes(in_axes)
    is_number = isinstance(chunks, int) and not isinstance(chunks, bool)
    if chunks is not None and (not is_number or chunks < 1):
        raise ValueError(f"hostcall.map: chunks={chunks!r} is no positive number. Write chunks=8.")
    if isinstance(fn, Callback):
        return _mapped_callback(fn, executor, in_axes, chunks)
    if isinstance(fn, NativeCode):
        raise ValueError(f"hostcall.map of {fn!r}: a program calls native code itself.")
    options = declaration_of(fn)
    if executor is None and options is not None:
        executor = options.executor
    return _mapped_function(fn, executor, in_axes, chunks)


def _mapped_function(
    fn: Callable[..., Any], executor: Any, in_axes: Any, chunks: int | None, out_axes: Any = 0
) -> MappedFunction:
    provider = _executors.provider_of(executor)
    description = f"hostcall.map of {source_location.of_function(fn)}"
    if provider is None:
        raise TypeError(
            f"{description}: no executor is given or declared. Write "
            "executor=concurrent.futures.ThreadPoolExecutor(4), for one."
        )
    return MappedFunction(fn, provider, in_axes, chunks, description, out_axes)


def _mapped_callback(
    callback: Callback, executor: Any, in_axes: Any, chunks: int | None, out_axes: Any = 0
) -> Callback:
    options = callback._options
    _check_callback(callback)
    executor = options.executor if executor is None else executor
    function = _mapped_function(callback._function, executor, in_axes, chunks, out_axes)
    grad = callback._grad
    if isinstance(grad, Callback):
        # It takes inputs, results and upstream gradients. The gradients of an input that all
        # chunks get whole are summed.
        axes = (in_axes, out_axes, out_axes)
        grad = _mapped_callback(grad, executor, axes, chunks, out_axes=in_axes)
    options = dataclasses.replace(options, executor=None)
    return Callback(function, options, callback.kind, callback.stateful, None, grad)


def _check_callback(callback: Callback) -> None:
    if callback.kind != "numpy":
        raise ValueError(
            f"hostcall.map of {callback!r}: its function takes tensors, which cannot be divided "
            'here. Make it of kind="numpy".'
        )
    if callback._options.shares_memory:
        on_device = callback._options.on_device
        lending = "memory='device' lends" if on_device else "borrow=True and out=True lend"
        raise ValueError(
            f"hostcall.map of {callback!r}: {lending} the function the program's own memory, which "
            f"its workers do not have. Take {'it' if on_device else 'them'} away."
        )
