"""`hostcall.declare`: users' declarations, and the lookup of a function's declaration."""

from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, overload

from hostcall._functions.declaration import Declaration, check_function
from hostcall._functions.native_code import NativeCode, check_declared

F = TypeVar("F", bound=Callable[..., Any])

# The attribute of the object itself that holds its declarations. A shape function may refer to the
# function, so a table here would keep both alive for ever.
_ATTRIBUTE = "__hostcall_declarations__"

_Key = tuple[int, ...]


class _Declarations:
    """The declarations of one function, or of one object's methods.

    They do not follow an object's attributes when these are pickled, or copied to another object,
    as by `functools.wraps`.
    """

    def __init__(self, owner: object) -> None:
        self.owner = weakref.ref(owner)
        # A method's function is kept here, since its id could otherwise be reused.
        self.of: dict[_Key, tuple[Any, Declaration]] = {}

    def __reduce__(self) -> Any:
        return type(None), ()


# Declarations of objects without attributes. Callables may define equality as they like, so the
# keys are ids; the reference tells whether an id still means the same object.
_table: dict[_Key, tuple[Callable[[], Any], Declaration]] = {}


@overload
def declare(
    function: F,
    *,
    result: object = None,
    pure: bool = False,
    timeout: float | None = None,
    route: str | None = None,
    borrow: bool = False,
    out: bool = False,
    memo: bool | int = False,
    executor: Any = None,
    wait: bool = True,
    queue: int | None = None,
    when_full: str = "wait",
    vmap_method: str | None = None,
    retries: int = 0,
    memory: str = "host",
    concurrent: bool = False,
) -> F: ...
@overload
def declare(
    *,
    result: object = None,
    pure: bool = False,
    timeout: float | None = None,
    route: str | None = None,
    borrow: bool = False,
    out: bool = False,
    memo: bool | int = False,
    executor: Any = None,
    wait: bool = True,
    queue: int | None = None,
    when_full: str = "wait",
    vmap_method: str | None = None,
    retries: int = 0,
    memory: str = "host",
    concurrent: bool = False,
) -> Callable[[F], F]: ...
def declare(
    function: object = None,
    *,
    result: object = None,
    pure: bool = False,
    timeout: float | None = None,
    route: str | None = None,
    borrow: bool = False,
    out: bool = False,
    memo: bool | int = False,
    executor: Any = None,
    wait: bool = True,
    queue: int | None = None,
    when_full: str = "wait",
    vmap_method: str | None = None,
    retries: int = 0,
    memory: str = "host",
    concurrent: bool = False,
) -> Any:
    """Declare the results and other properties of a function that is passed to a script op.

    XLA must know the shape of every result when it compiles. The declaration holds for every
    `tf.py_function`, `tf.numpy_function` and `tf.compat.v1.py_func` of `function` that is traced
    from now on. Each run of the function in a compiled program is checked against it.

    Args:
      function: the function that is passed to the op: a function, method, builtin or other
        callable. Held weakly where Python allows it. Without it, `declare` is a decorator.
      result: the shapes and dtypes of the results; None declares nothing. One of

        - a `tf.TensorSpec`, or a structure of them like the op's `Tout`;
        - `hostcall.BoundedSpec`s in the same places, if only an upper bound is known;
        - a shape function, from the specs of the arguments to one of the above, or to bare shapes.
          It is called when XLA compiles, with a `tf.TensorSpec` of known shape for each argument,
          or a `BoundedSpec` if the size of an argument is bounded;
        - `"trace"`, for `tf.py_function`: TensorFlow traces the function with symbolic tensors to
          find the shapes. So the function runs once more for each combination of argument shapes,
          with all its side effects, and TensorFlow must be able to trace it.

      pure: True declares that the function has no side effects. In compiled functions its calls
        have no order. The gradient of a `tf.py_function` then runs it once more, instead of keeping
        tape residuals.
      timeout: the seconds that a call may take, on a thread of its own. A longer call fails with
        its stack: `tf.errors.DeadlineExceededError` in a compiled program, elsewhere
        `tf.errors.UnknownError`.
      route: how compiled functions call it, as for `hostcall.configure`, which decides for None.
      borrow: True passes read-only views of the program's own memory, instead of copies. The
        function must drop them before it returns; it may return them, or parts of them.
      out: True makes the function write its results into arrays over the program's own memory. It
        gets them by the keyword `out`, as NumPy's functions do: an array, a tuple of arrays, or a
        structure like `Tout`, with arbitrary values at first. It returns nothing, or `out`. The
        sizes must be known before the call, so no `BoundedSpec`s. `borrow` and `out` are for
        functions of arrays, not for `tf.py_function`. A view that is still referenced after the
        call is a `tf.errors.InvalidArgumentError`; its memory is kept as long as the reference.
      memo: for functions of arrays: True, or a number, declares that the function is pure. The
        results for the last 128 sets of arguments, or that number, are kept, for eager calls, plain
        graphs and compiled functions together. Exceptions are not kept. If XLA knows all arguments
        when it compiles, hostcall calls the function then.
      executor: the executor of the calls: anything with the interface of
        `concurrent.futures.Executor`, or a function that makes one. That function is called once in
        each process, and again after the executor has broken. A `tf.py_function` needs a
        `ThreadPoolExecutor`. A call that the executor cannot make is a `hostcall.ExecutorError`. If
        a call on one of the executor's threads makes another one, that runs on the same thread.
      wait: False makes programs hand over copies of the arguments and go on, for functions without
        results: logs, checkpoints, plots. All these calls run one by one, in program order, on a
        thread of hostcall's; those with an executor run on that, one by one for each executor. The
        function's return value is dropped. Its exception is raised by the next call of the
        function, or by `hostcall.barrier`. A process ends when all calls have ended. The `timeout`
        starts when the call runs.
      queue: with `wait=False`, how many calls of the function may wait to run; 16 if left out.
      when_full: the effect of one more call on a full queue. "wait": the program waits.
        "drop_oldest": the oldest waiting call is never made; `hostcall.stats` counts those. A call
        that a function with `wait=False` makes itself does not wait for room.
      vmap_method: how `tf.vectorized_map`, jacobians and `jax.vmap` batch a call. One of

        - `"sequential"`: a call for each element of the batch, one after another;
        - `"expand_dims"`: one call for the batch. Each argument gets one more axis, in front: the
          batch axis, or an axis of size 1 if the argument is the same for all elements. The results
          have the batch axis in front, too. `result` still describes one element;
        - `"broadcast_all"`: the same, and the axis of each argument has the batch's size;
        - `"map"`: as `"expand_dims"`, and the call is divided among the workers of `executor`, as
          by `hostcall.map`: the function gets a part of the batch.

        None is "sequential" for TensorFlow, with its warning, and is refused if
        `fallback_to_while_loop` is False.
      retries: how often to repeat a call whose worker has died, for functions that are pure: with
        `pure=True` or `memo`, or in ops that are not stateful.
      memory: the memory of the function's arguments and results. "host": NumPy arrays, copied from
        the device and back if the program runs on one. "device": it gets `hostcall.DeviceArray`s
        over the program's own memory, which CuPy, Numba, Torch and JAX take without a copy, and
        NumPy on the CPU. It is called when the arguments are ready, and only reads them, during the
        call. It returns NumPy arrays, or anything with `__dlpack__` or `__cuda_array_interface__`
        on the same device, ready on the stream that these name. Its work on streams other than
        these and the default one must have ended by then. For functions of arrays, without
        `borrow`, `out`, `memo`, `executor`, `timeout` and `wait=False`.
      concurrent: True lets calls of a pure function overlap with others, and begin early, on any
        thread. Without it the calls of a program run one at a time, wherever XLA allows on the
        thread that runs the program. An `executor` with several workers implies it, and so does
        `hostcall.map`. `hostcall.check` tests whether calls on several threads return the same as
        calls one by one.

    Returns:
      `function`.

    Raises:
      TypeError: when `function` is not callable, or an `async` function, or `executor` is neither
        an executor nor a function, or `wait` or `concurrent` is no bool.
      ValueError: when `result` is another string, `timeout` is not positive, `route`, `when_full`,
        `vmap_method` or `memory` is unknown, `memo` or `queue` is no positive number, or `retries`
        is no number from 0 on. Also for combinations: `memo` with `out`; `executor` with `borrow`
        or `out`; `wait=False` with `borrow`, `out`, `memo` or `pure`; `queue` or `when_full`
        without `wait=False`; "map" without an executor; and options that "device" excludes. Some
        ops raise it, too: a `tf.py_function` of a function with `memo`, an op with results of a
        function with `wait=False`, and a stateful op of a function with `retries` or `concurrent`
        that is not `pure`.

    Examples:
      >>> @hostcall.declare(result=lambda a: tf.TensorSpec(a.shape[:-1], a.dtype))
      ... def largest(a):
      ...     return a.max(axis=-1)
      >>> @tf.function(jit_compile=True)
      ... def program(a):
      ...     return tf.numpy_function(largest, [a], tf.float32)
      >>> program(tf.constant([[1.0, 5.0], [7.0, 2.0]])).numpy()
      array([5., 7.], dtype=float32)
    """
    declaration = Declaration(
        result,
        pure,
        timeout,
        route,
        borrow,
        out,
        memo,
        executor,
        wait=wait,
        queue=queue,
        when_full=when_full,
        vmap_method=vmap_method,
        retries=retries,
        memory=memory,
        concurrent=concurrent,
    )
    if function is None:
        return lambda decorated: _declare(decorated, declaration.renewed())
    return _declare(function, declaration)


def _declare(function: object, declaration: Declaration) -> Any:
    check_function(function, "hostcall.declare")
    declaration = of_native(function, declaration)
    key, owner = _identity(function)
    if not _keep_with(owner, key, (getattr(function, "__func__", None), declaration)):
        _table[key] = (_reference(owner, key), declaration)
    return function


def _keep_with(owner: object, key: _Key, declared: tuple[Any, Declaration]) -> bool:
    attributes = getattr(owner, "__dict__", None)
    if not isinstance(attributes, dict):  # a class has a read-only view
        return False
    try:
        known = _known(owner) or _Declarations(owner)
    except TypeError:
        return False
    known.of[key] = declared
    attributes[_ATTRIBUTE] = known
    return True


def _known(owner: object) -> _Declarations | None:
    attributes = getattr(owner, "__dict__", None)
    known = attributes.get(_ATTRIBUTE) if isinstance(attributes, dict) else None
    return known if isinstance(known, _Declarations) and known.owner() is owner else None


def _reference(owner: object, key: _Key) -> Callable[[], Any]:
    try:
        return weakref.ref(owner, functools.partial(_forget, key))
    except TypeError:  # not all callables of C modules can be held weakly, NumPy's ufuncs cannot
        return lambda: owner


# `table` is bound early: at exit, Python may clear a module's names before the objects die.
def _forget(key: _Key, _: object, table: dict[_Key, Any] = _table) -> None:
    table.pop(key, None)


def of_native(function: object, declaration: Declaration) -> Declaration:
    """Return the declaration; add the results that native code itself declares.

    Raises:
      ValueError: when an option is declared that native code cannot have.
    """
    if not isinstance(function, NativeCode):
        return declaration
    check_declared(function, vars(declaration))
    if declaration.result is not None:
        return declaration
    return dataclasses.replace(declaration, result=function.result)


def declaration_of(function: object) -> Declaration | None:
    """Return the declaration of `function`, or None."""
    key, owner = _identity(function)
    if (known := _known(owner)) is not None and key in known.of:
        return known.of[key][1]
    found = _table.get(key)
    if found is not None and found[0]() is owner:
        return found[1]
    return of_native(function, Declaration()) if isinstance(function, NativeCode) else None


def of_method(method: types.MethodType, declaration: Declaration) -> Declaration:
    """Return `declaration` for one object's method, with kept results for that object alone.

    If the object can have attributes, its calls share these results, and they live as long as it.
    """
    if declaration.table is None:
        return declaration
    found = declaration_of(method)
    if found is None:
        found = declaration.renewed()
        key, owner = _identity(method)
        _keep_with(owner, key, (method.__func__, found))
    return found


def _identity(function: object) -> tuple[_Key, Any]:
    """Return the key that identifies a callable, and the object whose lifetime it shares."""
    if isinstance(function, types.MethodType):
        # Each lookup makes a new bound method, so its own id identifies nothing.
        return (id(function.__self__), id(function.__func__)), function.__self__
    return (id(function),), function
