"""`hostcall.declare`: users' declarations and names of functions, and their lookup."""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, Unpack, overload

from hostcall._functions import frameworks, source_location
from hostcall._functions.native_code import Native, check_declared
from hostcall._functions.options import (
    DeclareOptions,
    Options,
    check_function,
    options_of,
    takes,
    unconverted,
)

_log = logging.getLogger("hostcall")
_COMES_LATE = (
    "hostcall: hostcall.declare of %s comes after a call was traced, and changes nothing for that: "
    "%s. Declare the function before the first call of the tf.function, or make a new one."
)
_late: set[str] = set()
_asked_for: set[_Key] = set()  # the functions whose declarations a call has asked for

F = TypeVar("F", bound=Callable[..., Any])

# The attribute of the object itself that holds its declarations. A shape function may refer to the
# function, so a table here would keep both alive for ever.
_ATTRIBUTE = "__hostcall_declarations__"

_Key = tuple[int, ...]


class _Declarations:
    """Declarations of a function or an object's methods, which copies and pickles do not follow."""

    def __init__(self, owner: object) -> None:
        self.owner = weakref.ref(owner)
        # A method's function is kept here, since its id could otherwise be reused.
        self.of: dict[_Key, tuple[Any, Options]] = {}

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


# Declarations of objects without attributes. Callables may define equality as they like, so the
# keys are ids; the reference tells whether an id still means the same object.
_table: dict[_Key, tuple[Callable[[], Any], Options]] = {}


@overload
def declare(function: F, **options: Unpack[DeclareOptions]) -> F: ...
@overload
def declare(**options: Unpack[DeclareOptions]) -> Callable[[F], F]: ...
@takes("declare", DeclareOptions)
def declare(function: object = None, **options: Any) -> Any:
    """Declare the results and other properties of a function that is passed to a script op.

    XLA must know the shape of every result when it compiles. The declaration holds for every
    `tf.py_function`, `tf.numpy_function` and `tf.compat.v1.py_func` of `function` that is traced
    from now on; the log names a call that was traced before. Each run of the function in a compiled
    program is checked against it.

    Args:
      function: the function that is passed to the op: a function, method, builtin or other
        callable. Held weakly where Python allows it. Without it, `declare` is a decorator.
      **options: `result`, `pure`, `timeout`, `route`, `borrow`, `out`, `memo`, `executor`, `wait`,
        `queue`, `when_full`, `vmap_method`, `retries`, `memory` and `concurrent`;
        `help(hostcall.declare)` describes each.

    Returns:
      `function`.

    Raises:
      TypeError: when `function` is not callable, or an `async` function, or `executor` is neither
        an executor nor a function, or `wait` or `concurrent` is not a bool.
      ValueError: when `result` is another string, `timeout` is not positive, `route`, `when_full`,
        `vmap_method` or `memory` is unknown, `memo` or `queue` is not positive, or `retries` is
        negative. Also for combinations: `memo` with `out`; `executor` with `borrow`
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
    declared = options_of("declare", DeclareOptions, options)
    if function is None:
        return unconverted(lambda decorated: _declare(decorated, declared.renewed()))
    return _declare(function, declared)


def _declare(function: object, options: Options) -> object:
    check_function(function, "hostcall.declare")
    options = add_native_results(function, options)
    key, owner = _identity(function)
    _warn_of_traced(function, key, options)
    if not _keep_with(owner, key, (getattr(function, "__func__", None), options)):
        _table[key] = (_reference(owner, key), options)
    return function


def _warn_of_traced(function: Any, key: _Key, options: Options) -> None:
    """Log that a declaration changes nothing for calls that were traced before it."""
    if key not in _asked_for:
        return  # to look through all calls takes long
    found = _traced_otherwise(key, options)
    if not found or found[0] in _late:  # a function that is traced again may declare again
        return
    # The graph of an eager tf.vectorized_map, or of a tf.function that is gone, runs no more.
    gc.collect()
    if found := _traced_otherwise(key, options):
        _late.add(found[0])
        _log.warning(_COMES_LATE, source_location.of_function(function), found[0])


def _traced_otherwise(key: _Key, options: Options) -> list[str]:
    """Return descriptions of the calls of a function that graphs have with other options."""
    side = frameworks.tensorflow()
    traced = [] if side is None else side.traced(lambda other: _identity(other)[0] == key)
    return [description for description, had in traced if had != options]


def _keep_with(owner: object, key: _Key, declared: tuple[Any, Options]) -> bool:
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


def add_native_results(function: object, options: Options) -> Options:
    """Return the declaration; add the results that native code itself declares."""
    if not isinstance(function, Native):
        return options
    check_declared(function, vars(options))
    if options.result is not None:
        return options
    return dataclasses.replace(options, result=function.result)


def declaration_of(function: object) -> Options | None:
    """Return the declaration of `function`, or None."""
    key, owner = _identity(function)
    _asked_for.add(key)
    if (known := _known(owner)) is not None and key in known.of:
        return known.of[key][1]
    found = _table.get(key)
    if found is not None and found[0]() is owner:
        return found[1]
    return add_native_results(function, Options()) if isinstance(function, Native) else None


def bind_to_method(method: types.MethodType, options: Options) -> Options:
    """Return `declaration` for one object's method, with kept results that live as long as it."""
    if options.table is None:
        return options
    found = declaration_of(method)
    if found is None:
        found = options.renewed()
        key, owner = _identity(method)
        _keep_with(owner, key, (method.__func__, found))
    return found


def _identity(function: object) -> tuple[_Key, Any]:
    """Return the key that identifies a callable, and the object whose lifetime it shares."""
    if isinstance(function, types.MethodType):
        # Each lookup makes a new bound method, so its own id identifies nothing.
        return (id(function.__self__), id(function.__func__)), function.__self__
    return (id(function),), function


# Names from `hostcall.register` and `hostcall.provide`. They stay as long as the process, since a
# graph may be loaded at any time.
_named: dict[str, Any] = {}

# Callbacks with a name, which live as long as the user keeps them.
_named_callbacks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def give_name(name: str, function: object) -> None:
    """Give a function a name; another function with this name loses it."""
    _named[name] = function


def note_callback(name: str, callback: object) -> None:
    """Record a `hostcall.callback` that has a name."""
    _named_callbacks[name] = callback


def find_named(name: str) -> Callable[..., Any] | None:
    """Return the function or `hostcall.callback` with this name, or None."""
    found = _named.get(name)
    return _named_callbacks.get(name) if found is None else found


def name_of(function: object) -> str | None:
    """Return the name that `give_name` gave to a function, or None."""
    return next((name for name, one in [*_named.items()] if _is_same(one, function)), None)


def _is_same(one: object, other: object) -> bool:
    if getattr(one, "__hostcall_function__", one) is other or one is other:
        return True
    # Each lookup makes a new bound method, so identity does not tell.
    return isinstance(one, types.MethodType) and bool(one == other)
