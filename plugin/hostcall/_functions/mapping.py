"""`hostcall.map`: functions whose calls are divided among the workers of an executor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hostcall._functions import source_location
from hostcall._functions.callback import Callback
from hostcall._functions.declaration import check_function
from hostcall._functions.declarations import declaration_of
from hostcall._functions.native_code import NativeCode
from hostcall_runtime import _executors, _mapped_calls
from hostcall_runtime._mapped_calls import MappedFunction


def mapped(
    fn: Callable[..., Any],
    *,
    executor: Any = None,
    in_axes: Any = 0,
    chunks: int | None = None,
) -> Any:
    """Divides the calls of a function among the workers of an executor.

    The leading axis of the arguments is divided into chunks. The function is called once for each
    of them, at the same time as far as there are workers, and the results are concatenated along
    their first axis. So the function takes a part of a batch, of whatever size, and must return for
    each element what it would return for the whole batch.

    Args:
      fn: a function of arrays, or a `hostcall.Callback` of kind "numpy", whose gradient is divided
        likewise where it is a `Callback`, and taken of the whole batch where it is code of
        TensorFlow or JAX. Each call gets arrays of its own. The calls of a stateful function run
        once each, in any order.
      executor: what runs the calls, as in `hostcall.declare`. It may be left out where that of `fn`
        is declared.
      in_axes: along which axis the arguments are divided, as in `jax.vmap`: a number for all, or a
        tuple with an entry for each argument: a number, None for an argument that each call gets
        whole, or a structure of these like that of the argument. Arrays that are passed by keyword
        are divided along their first axis.
      chunks: into how many chunks a batch is divided; None for as many as the executor has workers.
        There are fewer where the batch has fewer elements, and one where it has none. Their sizes
        differ by one at most.

    Returns:
      A function that is called with whole batches: NumPy arrays, or structures of them. It may be
      passed to `tf.numpy_function`, `hostcall.declare`, `hostcall.callback` and `hostcall.jax.call`
      like any other. Of a `Callback`, another `Callback`. An exception has a note that says which
      chunk it is of; the other chunks have ended then, or never begin.

    Raises:
      TypeError: when `fn` is not callable, there is no executor, or `in_axes` holds something else.
      ValueError: when `chunks` is no positive number, `in_axes` divides nothing, or `fn` is native
        code, or a `Callback` that takes tensors or borrows arrays. When the arguments of a call
        have no such axis, or different sizes along them, or the results no first axis.
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
    _check_chunks(chunks)
    if isinstance(fn, Callback):
        return _mapped_callback(fn, executor, in_axes, chunks)
    if isinstance(fn, NativeCode):
        raise ValueError(f"hostcall.map of {fn!r}: a program calls native code itself.")
    declaration = declaration_of(fn)
    if executor is None and declaration is not None:
        executor = declaration.executor
    return _mapped_function(fn, executor, in_axes, chunks)


def _mapped_function(
    fn: Callable[..., Any], executor: Any, in_axes: Any, chunks: int | None, out_axes: Any = 0
) -> MappedFunction:
    provider = _executors.provider_of(executor)
    description = f"hostcall.map of {source_location.of_function(fn)}"
    if provider is None:
        raise TypeError(
            f"{description}: nobody says what runs the calls. Write "
            "executor=concurrent.futures.ThreadPoolExecutor(4), for one."
        )
    return MappedFunction(fn, provider, in_axes, chunks, description, out_axes)


def _mapped_callback(
    callback: Callback, executor: Any, in_axes: Any, chunks: int | None, out_axes: Any = 0
) -> Callback:
    declaration = callback._declaration
    _check_callback(callback)
    executor = declaration.executor if executor is None else executor
    function = _mapped_function(callback._function, executor, in_axes, chunks, out_axes)
    grad = callback._grad
    if isinstance(grad, Callback):
        # It takes inputs, results and upstream gradients. What it returns for an input that all
        # chunks get is summed.
        axes = (in_axes, out_axes, out_axes)
        grad = _mapped_callback(grad, executor, axes, chunks, out_axes=in_axes)
    declaration = dataclasses.replace(declaration, executor=None)
    return Callback(function, declaration, callback.kind, callback.stateful, None, grad)


def _check_callback(callback: Callback) -> None:
    if callback.kind != "numpy":
        raise ValueError(
            f"hostcall.map of {callback!r}: its function takes tensors, which cannot be divided "
            'here. Make it of kind="numpy".'
        )
    if callback._declaration.shares_memory:
        on_device = callback._declaration.on_device
        lending = "memory='device' lends" if on_device else "borrow=True and out=True lend"
        raise ValueError(
            f"hostcall.map of {callback!r}: {lending} the function the program's own memory, which "
            f"its workers do not have. Take {'it' if on_device else 'them'} away."
        )


def _check_chunks(chunks: object) -> None:
    if chunks is None:
        return
    if not isinstance(chunks, int) or isinstance(chunks, bool) or chunks < 1:
        raise ValueError(f"hostcall.map: chunks={chunks!r} is no positive number. Write chunks=8.")
