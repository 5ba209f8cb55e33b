"""What users say of their functions: `hostcall.declare`."""

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

# Where a declaration is kept: with the object itself, since a shape function may refer to the
# function, and a # table here would then keep both alive for ever.
_ATTRIBUTE = "__hostcall_declarations__"

_Key = tuple[int, ...]


class _Declarations:
    """Those of one object: of a function, or of an object's methods.

    An object's attributes may be copied to another one, as `functools.wraps` does, or pickled:
    declarations stay behind.
    """

    def __init__(self, owner: object) -> None:
        self.owner = weakref.ref(owner)
        # With the function of a method, whose id may else become another's.
        self.of: dict[_Key, tuple[Any, Declaration]] = {}

    def __reduce__(self) -> Any:
        return type(None), ()


# Objects without attributes. Keyed by identity, since callables may define equality as they like;
# the reference tells whether the id still means the same object.
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
    """Declares what holds of a function that is passed to a script op.

    XLA must know the shape of every result when it compiles. The declaration holds for every
    `tf.py_function`, `tf.numpy_function` and `tf.compat.v1.py_func` of `function` that is traced
    from now on. What it says is checked whenever the function runs in a compiled program.

    Args:
      function: the function that is passed to the op: a function, method, builtin or other
        callable. Held weakly where Python allows it. Left out, `declare` is a decorator.
      result: what is known of the results; None declares nothing. One of

        - a `tf.TensorSpec`, or a structure of them like the op's `Tout`;
        - `hostcall.BoundedSpec`s in the same places, if only an upper bound is known;
        - a shape function, from the specs of the arguments to one of the above, or to bare shapes.
          It is called when XLA compiles, with a `tf.TensorSpec` of known shape for each argument,
          or a `BoundedSpec` if the size of an argument is bounded;
        - `"trace"`, for `tf.py_function`: TensorFlow traces the function with symbolic tensors to
          find the shapes. The function then runs once more for each combination of argument
          shapes, with all that it prints or appends, and tracing has to be able to follow it.

      pure: True declares that the function has no side effects. In compiled functions its calls
        have no order. The gradient of a `tf.py_function` then runs it once more, instead of keeping
        what its call has computed.
      timeout: the seconds that a call may take, on a thread of its own. One that takes longer fails
        with its stack: `tf.errors.DeadlineExceededError` in a compiled program, elsewhere
        `tf.errors.UnknownError`.
      route: how compiled functions call it, as for `hostcall.configure`, which None leaves it to.
      borrow: True passes read-only views of the program's own memory, instead of copies. The
        function must drop them before it returns; it may return them, or parts of them.
      out: True has the function write its results into arrays over the program's own memory. It
        gets them by the keyword `out`, as NumPy's functions do: an array, a tuple of arrays, or a
        structure like `Tout`, with arbitrary values at first. It returns nothing, or `out`. The
        sizes must be known before the call, so no `BoundedSpec`s. `borrow` and `out` are for
        functions of arrays, not for `tf.py_function`. A view that something still refers to after
        the call is a `tf.errors.InvalidArgumentError`; its memory is kept until then.
      memo: for functions of arrays: True, or a number, declares that the function is pure. The
        results for the 128 sets of arguments, or that number, that were used last are kept, for
        eager calls, plain graphs and compiled functions together. Exceptions are not kept. If XLA
        knows all arguments when it compiles, hostcall calls the function then.
      executor: what runs the calls: anything with the interface of `concurrent.futures.Executor`,
        such as a pool of processes, or a function that makes it, which is called once in each
        process, and again after the executor has broken. A `tf.py_function` needs a
        `ThreadPoolExecutor`. What the executor cannot do is a `hostcall.ExecutorError`. A call of
        the executor's own thread that its calls make runs on that thread.
      wait: False has programs hand over copies of the arguments and go on, for functions without
        results: logs, checkpoints, plots. The calls of all such functions run one by one, in the
        order of the program, on a thread of hostcall's; those with an executor on that, one by one
        for each executor. What the function returns is thrown away. What it raises, the next call
        of the function raises, or `hostcall.barrier`. A process ends when all calls have ended. The
        `timeout` is for the call as it runs.
      queue: with `wait=False`, how many calls of the function may wait to be run; 16 if left out.
      when_full: what happens to one more: "wait", the program waits, or "drop_oldest", the call
        that has waited longest is never made; `hostcall.stats` counts those. A call that a function
        with `wait=False` makes itself does not wait for room.
      vmap_method: what `tf.vectorized_map`, jacobians and `jax.vmap` make of a call. One of

        - `"sequential"`: a call for each element of the batch, one after another;
        - `"expand_dims"`: one call for the batch. Each argument gets one more axis, in front: that
          of the batch, or of size 1 if the argument is the same for all elements. So do the
          results, whose first axis is that of the batch. What `result` says remains that of one
          element;
        - `"broadcast_all"`: the same, and the axis of each argument has the batch's size;
        - `"map"`: as `"expand_dims"`, and the call is divided among the workers of `executor`, as
          `hostcall.map` does it: the function gets a part of the batch.

        None is "sequential" for TensorFlow, with its warning, and is refused if
        `fallback_to_while_loop` is False.
      retries: how often a call is made again whose worker has died, for functions that are pure:
        with `pure=True` or `memo`, or in ops that are not stateful.
      memory: where the arrays lie that the function takes and returns. "host": NumPy's, copied from
        the device and back where the program runs on one. "device": it gets `hostcall.DeviceArray`s
        over the program's own memory, which CuPy, Numba, Torch and JAX take without a copy, and
        NumPy on the CPU. It is called when the arguments are ready, and only reads them, while the
        call lasts. It returns anything with `__dlpack__` or `__cuda_array_interface__` on the same
        device, ready on the stream that these name, or arrays of NumPy's; work that it has started
        on other streams than these and the default one must be done by then. For functions of
        arrays, without `borrow`, `out`, `memo`, `executor`, `timeout` and `wait=False`.
      concurrent: True lets calls of a pure function run at the same time as others, and begin
        early, on any thread. Without it the calls of a program run one at a time, on the thread
        that runs the program wherever XLA allows. An `executor` with several workers says the same,
        and so does `hostcall.map`. `hostcall.check` tries whether calls of several threads return
        what calls one by one do.

    Returns:
      `function`.

    Raises:
      TypeError: when `function` is not callable, or an `async` function, or `executor` is neither
        an executor nor a function, or `wait` or `concurrent` is no bool.
      ValueError: when `result` is another string, `timeout` is not positive, there is no such
        `route`, `memo` is no positive number or comes with `out`, or `executor` comes with
        `borrow` or `out`. A `tf.py_function` of a function with `memo` raises it, too. So do
        `wait=False` with `borrow`, `out`, `memo` or `pure`, and an op with results of such a
        function; a `queue` that is no positive number, another `when_full`, and either of these
        two without `wait=False`; a `vmap_method` that there is not, or "map" without an executor;
        `retries` that is no number from 0 on; and another `memory`, and what does not go with
        "device". A stateful op of a function with `retries` or `concurrent` that is not `pure`
        raises it.

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


# Bound early: when the process exits, a module's names may go before the objects that it serves.
def _forget(key: _Key, _: object, table: dict[_Key, Any] = _table) -> None:
    table.pop(key, None)


def of_native(function: object, declaration: Declaration) -> Declaration:
    """The declaration, with the results where `function` is native code, which says them itself.

    Raises:
      ValueError: when something is declared that cannot hold of native code.
    """
    if not isinstance(function, NativeCode):
        return declaration
    check_declared(function, vars(declaration))
    if declaration.result is not None:
        return declaration
    return dataclasses.replace(declaration, result=function.result)


def declaration_of(function: object) -> Declaration | None:
    """What was declared of `function`, or None."""
    key, owner = _identity(function)
    if (known := _known(owner)) is not None and key in known.of:
        return known.of[key][1]
    found = _table.get(key)
    if found is not None and found[0]() is owner:
        return found[1]
    return of_native(function, Declaration()) if isinstance(function, NativeCode) else None


def of_method(method: types.MethodType, declaration: Declaration) -> Declaration:
    """`declaration` for one object's method: results that are kept are kept for that object.

    They are shared and live as long as the object, where it can have attributes.
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
    """What tells a callable from others, and the object whose life it shares."""
    if isinstance(function, types.MethodType):
        # A bound method is made anew each time that it is looked up.
        return (id(function.__self__), id(function.__func__)), function.__self__
    return (id(function),), function
