"""Recorded calls: their arguments, exceptions, and which functions are recorded."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._replay import values
from hostcall._replay.file_format import Raised
from hostcall._replay.values import Value
from hostcall_runtime import _interception, _locks
from hostcall_runtime._interception import Site

# A fork waits for it: what a child does with a database that is being written would harm the file.
LOCK = _locks.new_lock()


class RecordingError(RuntimeError):
    """A recording that cannot be written or read; the text says why, and what to do about it.

    Examples:
      >>> try:
      ...     with hostcall.replay("nowhere"):
      ...         pass
      ... except hostcall.RecordingError as error:
      ...     print(str(error).split(".")[0])
      hostcall: there is no recording 'nowhere'
    """


class ReplayError(RecordingError):
    """A program that is replayed does something else than was recorded.

    The text names the callback, the call and the first difference. `hostcall.replay` raises it at
    its end; what the program itself raises is an error of the framework's with the same text.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/doubles.hostcall"
      >>> double = hostcall.callback(lambda x: 2 * x, result=lambda x: x)
      >>> with hostcall.record(file):
      ...     _ = double(1.0)
      >>> try:
      ...     with hostcall.replay(file):
      ...         _ = double(3.0)
      ... except hostcall.ReplayError as error:
      ...     print("recorded 1.0, got 3.0" in str(error))
      True
    """


class RecordedError(RuntimeError):
    """Raised in a replay for an exception of a class that there is not in this process.

    The text is the exception's, after the name of its class.

    Examples:
      >>> import tempfile
      >>> file = tempfile.mkdtemp() + "/run.hostcall"
      >>> def read(x):
      ...     class SensorError(Exception):
      ...         pass
      ...     raise SensorError("no such sensor")
      >>> def run(block):
      ...     with block:
      ...         try:
      ...             tf.numpy_function(read, [1.0], tf.float32)
      ...         except tf.errors.OpError as error:
      ...             return hostcall.last_error(error)
      >>> run(hostcall.record(file))
      SensorError('no such sensor')
      >>> type(run(hostcall.replay(file))).__name__
      'RecordedError'
    """


def encode(error: Exception) -> Raised:
    """An exception, without its traceback."""
    kind = type(error)
    args = [values.encode(value) for value in error.args]
    plain = None if values.unknowns(args) else args
    return Raised(f"{kind.__module__}:{kind.__qualname__}", _text_of(error), plain)


def decode(raised: Raised) -> Exception:
    """The same again: of its class, where that is a loaded one, else a RecordedError.

    Nothing is imported for it: a file must not have code run.
    """
    kind = _class_of(raised.kind)
    if kind is not None:
        for args in _possible(raised):
            with contextlib.suppress(Exception):
                error = kind(*args)
                if _text_of(error) == raised.text:
                    return error
    name = raised.kind.removeprefix("builtins:").replace(":", ".")
    return RecordedError(f"{name}: {raised.text}")


def _possible(raised: Raised) -> list[tuple[Any, ...]]:
    """What its class may be made of; the last one is TensorFlow's."""
    args = [] if raised.args is None else [tuple(values.decode(value) for value in raised.args)]
    return [*args, (raised.text,), (None, None, raised.text)]


def _class_of(name: str) -> type[Exception] | None:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _text_of(error: Exception) -> str:
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # of a `__str__` of the user's
        return ""


def encode_arguments(
    site: Site, args: Sequence[Any], call_of_handle: Callable[[int], int]
) -> list[Value]:
    """The arguments of a call, copied before the function can write to them.

    Args:
      site: of the call.
      args: its arguments.
      call_of_handle: tells which call has given a handle; 0 for none of these.
    """
    encoded = [values.encode_argument(value) for value in args]
    if site.takes_handle:
        # A handle is another number in each run.
        handle = int(np.asarray(args[0]))
        encoded[0] = values.encode_argument(np.int64(call_of_handle(handle)))
    return encoded


def outs_of(given: Mapping[str, Any]) -> list[Any]:
    """The arrays that a call writes its results into."""
    out = given.get("out")
    if out is None:
        return []
    return list(out) if isinstance(out, tuple) else [out]


Chosen = str | Callable[..., Any]


def are_alike(one: str, other: str) -> bool:
    """Whether two names may be those of one function.

    It may have moved to another module. Of a function that is defined in another one, autograph
    knows the last scopes alone, and a user may write no more than its own name.
    """
    one, other = one.rpartition(":")[2], other.rpartition(":")[2]
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


class Selection:
    """Some functions.

    Attributes:
      names: theirs; None for all functions.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self.names = None if names is None else frozenset(names)
        self._found: set[str] = set()
        self._chosen_by = functools.cache(self._find)

    def has(self, site: Site) -> bool:
        """Whether a call is of one of them, or of the gradient of one."""
        return self.names is None or self._chosen_by(site.name) is not None

    def without_calls(self) -> list[str]:
        """The names of which `has` was not asked."""
        return sorted((self.names or frozenset()) - self._found)

    def _find(self, full: str) -> str | None:
        called = full.partition("/gradient")[0]
        for name in self.names or ():
            # With a module it is that one.
            if called == name or (":" not in name and are_alike(name, called)):
                self._found.add(name)
                return name
        return None


ALL = Selection(None)


def read(only: Iterable[Chosen] | None) -> Selection:
    """The selection that a user has made, by names, functions and callbacks.

    Raises:
      TypeError: when it is neither.
      ValueError: when it is empty.
    """
    if only is None:
        return ALL
    if isinstance(only, str) or callable(only):
        only = [only]
    names = [_name_of(chosen) for chosen in only]
    if not names:
        raise ValueError(
            "hostcall.record: only=[] leaves no function to record. Leave it out to record all."
        )
    return Selection(names)


def _name_of(chosen: object) -> str:
    if isinstance(chosen, str):
        return chosen
    if not callable(chosen):
        raise TypeError(
            f"hostcall.record: only= is for functions and their names, and {chosen!r} is neither."
        )
    function = getattr(chosen, "__hostcall_function__", None)
    if function is None:
        return _interception.name_of(chosen)
    return getattr(chosen, "name", None) or _interception.name_of(function)


# Of frameworks that are loaded: waits until what was started has ended, and raises its errors.
_waits: list[Callable[[], None]] = []


def add(wait: Callable[[], None]) -> None:
    """Has `wait_for_programs` call `wait`, too."""
    _waits.append(wait)


def wait_for_programs() -> None:
    """Waits until the programs that were started have made their calls."""
    for wait in _waits:
        wait()
    if (jax := sys.modules.get("jax")) is not None:
        # What a program without effects computes is told of by its results alone.
        for array in jax.live_arrays():
            with contextlib.suppress(Exception):  # which whoever reads them gets
                array.block_until_ready()
        jax.effects_barrier()
