"""Recorded calls, and the file that holds them.

Each call that has ended is in the file, even if the process dies: SQLite guarantees it. Values
are encoded as MessagePack, which holds data and no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import sys
import types
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hostcall._replay import values
from hostcall._replay.values import Value
from hostcall_runtime import _locks
from hostcall_runtime._interception import CallSite

# A fork waits for this lock: a child that inherits a half-written database could harm the file.
LOCK = _locks.new_lock()


class RecordingError(RuntimeError):
    """An error in writing or reading a recording; the text gives the cause and the remedy.

    Examples:
      >>> try:
      ...     with hostcall.replay("nowhere"):
      ...         pass
      ... except hostcall.RecordingError as error:
      ...     print(str(error).split(".")[0])
      hostcall: there is no recording 'nowhere'
    """


class ReplayError(RecordingError):
    """A difference between a replayed program and its recording.

    The text names the callback, the call and the first difference. `hostcall.replay` raises it at
    the end of its block; the program itself raises a framework error with the same text.

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
    """A replayed exception whose class does not exist in this process.

    The text is the name of the class and the exception's own text.

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
    """Encode an exception, without its traceback."""
    kind = type(error)
    args = [values.encode(value) for value in error.args]
    plain = None if values.unknowns(args) else args
    return Raised(f"{kind.__module__}:{kind.__qualname__}", _text_of(error), plain)


def decode(raised: Raised) -> Exception:
    """Decode an exception: one of its class if that is loaded, otherwise a RecordedError."""
    # No module is imported for it, since a file must not make code run.
    kind = _class_of(raised.kind)
    if kind is not None:
        recorded = [] if raised.args is None else [tuple(map(values.decode, raised.args))]
        # The last ones are the arguments of TensorFlow's errors.
        for args in (*recorded, (raised.text,), (None, None, raised.text)):
            with contextlib.suppress(Exception):
                error = kind(*args)
                if _text_of(error) == raised.text:
                    return error
    name = raised.kind.removeprefix("builtins:").replace(":", ".")
    return RecordedError(f"{name}: {raised.text}")


def _class_of(name: str) -> type[Exception] | None:
    # Only what is there already is looked at: a module's `__getattr__`, a lazy module's
    # `__getattribute__` and a metaclass may import or run anything when they are asked.
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    owner: type = types.ModuleType
    for part in qualname.split("."):
        if not issubclass(type(found), owner):
            return None
        plain = type if owner is type else object
        found = plain.__getattribute__(found, "__dict__").get(part)
        owner = type
    is_class = issubclass(type(found), type)
    return found if is_class and Exception in type.__getattribute__(found, "__mro__") else None


def _text_of(error: Exception) -> str:
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # from the user's `__str__`
        return ""


def encode_arguments(
    site: CallSite, args: Sequence[Any], handles: Mapping[int, int]
) -> list[Value]:
    """Encode copies of the arguments; `handles` has the call that returned each handle."""
    encoded = [values.encode_argument(value) for value in args]
    if site.takes_handle:
        # Each run has other handles, so the id of the forward call is recorded instead.
        handle = int(np.asarray(args[0]))
        encoded[0] = values.encode_argument(np.int64(handles.get(handle, 0)))
    return encoded


def outs_of(given: Mapping[str, Any]) -> list[Any]:
    """Return the arrays that a call writes its results into."""
    out = given.get("out")
    if out is None:
        return []
    return list(out) if isinstance(out, tuple) else [out]


Chosen = str | Callable[..., Any]


def are_alike(one: str, other: str) -> bool:
    """Return whether two names may belong to one function."""
    # The function may have moved to another module. For a nested function autograph knows only the
    # last scopes, and a user may write only the function's own name.
    one, other = one.rpartition(":")[2], other.rpartition(":")[2]
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


class Selection:
    """A selection of functions by their names; None selects all."""

    def __init__(self, names: Iterable[str] | None) -> None:
        self.names = None if names is None else frozenset(names)
        self._found: set[str] = set()

    def has(self, site: CallSite) -> bool:
        """Return whether a call is of a selected function or of its gradient."""
        if self.names is None:
            return True
        called = site.name.partition("/gradient")[0]
        # A name with a module must match exactly.
        alike = {n for n in self.names if n == called or (":" not in n and are_alike(n, called))}
        self._found |= alike
        return bool(alike)

    def without_calls(self) -> list[str]:
        """Return the selected names for which `has` was never true."""
        return sorted((self.names or frozenset()) - self._found)


# One function for each loaded framework: waits for the started programs, and raises their errors.
_waits: list[Callable[[], None]] = []


def add(wait: Callable[[], None]) -> None:
    """Make `wait_for_programs` call `wait`, too."""
    _waits.append(wait)


def wait_for_programs() -> None:
    """Wait until the programs that were started have made their calls."""
    for wait in _waits:
        wait()
    if (jax := sys.modules.get("jax")) is not None:
        # The barrier below does not wait for programs without effects; only their results tell.
        for array in jax.live_arrays():
            with contextlib.suppress(Exception):  # code that reads the array gets the error
                array.block_until_ready()
        jax.effects_barrier()


# The application id ("hcrc") and the version in the database's header.
APPLICATION = 0x68637263
VERSION = 1

PIECE = 1 << 28  # SQLite holds no more than 10^9 bytes in one field
ARGUMENTS, OUTCOME = 0, 1

# `state` has one row. If `only_of` has rows, other functions are not recorded. `began` and `ended`
# are ticks of one clock, which advances with each event.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE state (written_by TEXT NOT NULL, complete INTEGER NOT NULL, calls INTEGER NOT NULL);
CREATE TABLE only_of (name TEXT NOT NULL);
CREATE TABLE callbacks (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE calls (
  id INTEGER PRIMARY KEY, callback INTEGER NOT NULL, description TEXT NOT NULL,
  node TEXT NOT NULL, function INTEGER NOT NULL, thread INTEGER NOT NULL, ordered INTEGER NOT NULL,
  began INTEGER NOT NULL, ended INTEGER NOT NULL, arguments BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE pieces (
  call INTEGER NOT NULL, part INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (call, part, number)
) WITHOUT ROWID;
"""


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """A call that returned."""

    value: Value  # without the handle
    has_handle: bool = False  # whether its tape residual was kept for a gradient


class Wrote(msgspec.Struct, frozen=True, tag="wrote"):
    """A call that wrote its results into the arrays of `out`."""

    results: list[Value]


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """A call that raised an exception."""

    kind: str  # `module:qualname` of its class
    text: str
    args: list[Value] | None = None  # if all of them can be recorded


Outcome = Returned | Wrote | Raised


class RecordedCall(msgspec.Struct):
    """A row of `calls`; `digest` is the digest of the arguments."""

    id: int
    callback: int
    description: str
    node: str
    function: int
    thread: int
    ordered: bool
    began: int
    ended: int
    digest: bytes
    checksum: int


# For the arguments of a call (a list of values) and its outcome. For other data, those that decode
# raise msgspec.DecodeError.
encode_record = msgspec.msgpack.Encoder().encode
_arguments: Callable[[bytes], list[Value]] = msgspec.msgpack.Decoder(list[Value]).decode
_outcome: Callable[[bytes], Outcome] = msgspec.msgpack.Decoder(Outcome).decode


def decode_arguments(data: bytes) -> list[Value]:
    """Decode the arguments of a call; raise a ValueError if they are nested too deep."""
    arguments = _arguments(data)
    values.check_depth(arguments)
    return arguments


def decode_outcome(data: bytes) -> Outcome:
    """Decode the outcome of a call; raise a ValueError if its values are nested too deep."""
    outcome = _outcome(data)
    match outcome:
        case Returned():
            values.check_depth([outcome.value])
        case Wrote():
            values.check_depth(outcome.results)
        case Raised():
            values.check_depth(outcome.args or [])
    return outcome


SELECT_SCHEMA = "SELECT type, name, sql FROM sqlite_master"


def has_tables(rows: Iterable[tuple[Any, ...]]) -> bool:
    """Return whether these rows of `SELECT_SCHEMA` are those of a recording and no others."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        own = database.execute(SELECT_SCHEMA).fetchall()
    return sorted(map(_in_one_line, rows)) == sorted(map(_in_one_line, own))


def _in_one_line(row: tuple[Any, ...]) -> str:
    return " ".join(" ".join(map(str, row)).split())


def digest_of(arguments: bytes) -> bytes:
    """Return a digest that is equal for equal encoded arguments."""
    return hashlib.blake2b(arguments, digest_size=16).digest()


def checksum_of(call: RecordedCall, name: str, outcome: bytes) -> int:
    """Return the checksum of a call and its outcome; the digest stands for the arguments."""
    place = (call.id, name, call.description, call.node, call.function, call.thread)
    when = (bool(call.ordered), call.began, call.ended, call.digest)
    return zlib.crc32(outcome, zlib.crc32(repr((place, when)).encode()))
