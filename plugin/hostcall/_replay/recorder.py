"""The recorder, which writes each call into a recording."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from hostcall._replay import calls, values
from hostcall_runtime import _interception
from hostcall_runtime._errors import counted
from hostcall_runtime._interception import CallSite, Function, Given


class RecordingWriter:
    """A writer of calls of functions `names`, or all, into a new file, each as soon as it ends."""

    def __init__(self, path: str, overwrite: bool, names: Iterable[str]) -> None:
        self.path = path
        self._callbacks: dict[str, int] = {}
        self._count = 0
        if overwrite:
            _remove(path)
        _create(path)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # No other process may read an unfinished recording, or write to it.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            # Written data survives a crash of the process. Surviving one of the machine costs much
            # more time.
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(calls.SCHEMA)
            self._database.execute("INSERT INTO state VALUES (?, 0, 0)", [_written_by()])
            self._database.executemany("INSERT INTO only_of VALUES (?)", [(n,) for n in names])
        except sqlite3.Error as error:
            self._database.close()
            raise self._cannot_write(error) from error

    def write(self, call: calls.RecordedCall, name: str, arguments: bytes, outcome: bytes) -> None:
        """Write a call of the callback `name`, and fill in its `callback` and its checksum."""
        call.checksum = calls.checksum_of(call, name, outcome)
        try:
            with calls.LOCK, self._database:  # which ends the transaction
                self._database.execute("BEGIN")
                call.callback = self._callback(name)
                row = msgspec.structs.astuple(call)
                blanks = ", ".join("?" * len(row))
                self._database.execute(f"INSERT INTO calls VALUES ({blanks})", row)
                self._write_pieces(call.id, calls.ARGUMENTS, arguments)
                self._write_pieces(call.id, calls.OUTCOME, outcome)
                self._count += 1
        except sqlite3.Error as error:
            raise self._cannot_write(error) from error

    def close(self, complete: bool) -> None:
        """Close the file, and mark it if it holds all calls that were to be recorded."""
        try:
            with calls.LOCK, contextlib.closing(self._database):
                if complete:
                    self._database.execute(
                        "UPDATE state SET complete = 1, calls = ?", [self._count]
                    )
        except sqlite3.Error as error:
            raise self._cannot_write(error) from error

    def _callback(self, name: str) -> int:
        if name not in self._callbacks:
            number = len(self._callbacks) + 1
            self._database.execute("INSERT INTO callbacks VALUES (?, ?)", (number, name))
            self._callbacks[name] = number
        return self._callbacks[name]

    def _write_pieces(self, call: int, part: int, data: bytes) -> None:
        view = memoryview(data)
        pieces = (view[at : at + calls.PIECE] for at in range(0, len(view), calls.PIECE))
        rows = ((call, part, number, piece) for number, piece in enumerate(pieces))
        self._database.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?)", rows)

    def _cannot_write(self, error: sqlite3.Error) -> calls.RecordingError:
        return calls.RecordingError(
            f"hostcall: the recording {self.path!r} cannot be written: {error}. It holds the "
            f"{self._count} calls that were written before."
        )


def _create(path: str) -> None:
    try:
        # Check and create in one step: if two processes record to one file, one of them fails.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        raise FileExistsError(
            f"hostcall: {path!r} exists already, or another process records to it. Remove it, "
            "choose another name, or write hostcall.record(..., overwrite=True), which takes the "
            "place of a recording."
        ) from None
    except OSError as error:
        raise calls.RecordingError(f"hostcall: {path!r} cannot be written: {error}.") from error


def _remove(path: str) -> None:
    """Remove a recording that no process is writing; any other file stays."""
    if not os.path.lexists(path):
        return
    from hostcall._replay.replayer import RecordingReader

    RecordingReader(path).close()
    os.unlink(path)


def _written_by() -> str:
    try:
        return f"hostcall {importlib.metadata.version('hostcall')}"
    except importlib.metadata.PackageNotFoundError:
        return "hostcall"


class Recorder:
    """An interceptor that calls the functions and writes their arguments and results."""

    def __init__(
        self, path: str, overwrite: bool, selection: calls.Selection | None = None
    ) -> None:
        self.path = path
        self._selection = selection or calls.Selection(None)
        self._writer = RecordingWriter(path, overwrite, self._selection.names or ())
        self._process = os.getpid()
        self._ids = itertools.count(1)
        self._ticks = itertools.count(1)
        # For each function its number and a reference, which holds it only where it has to.
        self._functions: dict[Any, tuple[int, Any]] = {}
        self._numbers = itertools.count(1)
        self._threads: dict[int, int] = {}
        self._in_flight: set[int] = set()
        # The call that returned each handle.
        self._handles: dict[int, int] = {}
        self._failure: calls.RecordingError | None = None
        self._is_over = False

    def call(self, site: CallSite, function: Function, args: Sequence[Any], given: Given) -> Any:
        """Call the function, record the call, and return the results; see `Interceptor`."""
        if not self._selection.has(site) or _interception.is_within_call() or not self._records():
            return function(*args, **given)
        with _interception.within_call():  # garbage collection may run the user's code here, too
            return self._call(site, function, args, given)

    def _call(
        self, site: CallSite, function: Function, args: Sequence[Any], given: Given
    ) -> object:
        begun, arguments = self._begin(site, args)
        try:
            returned = function(*args, **given)
            if site.to_arrays is not None:
                returned = site.to_arrays(returned)
        except Exception as error:
            self._end(site, begun, arguments, calls.encode(error))
            raise
        except BaseException:  # such as Ctrl-C, which does not come from the function
            with calls.LOCK:
                self._in_flight.discard(begun.id)
            raise
        if outs := calls.outs_of(given):
            outcome: calls.Outcome = calls.Wrote([values.encode(out) for out in outs])
        else:
            outcome = self._returned(site, begun.id, returned)
        self._end(site, begun, arguments, outcome)
        return returned

    def _records(self) -> bool:
        if self._process == os.getpid():
            return not self._is_over and self._failure is None
        if not self._is_over:
            self._is_over = True
            _warn(
                f"hostcall: the calls of a forked process are not recorded to {self.path!r}. "
                "Record to another file there."
            )
        return False

    def _begin(self, site: CallSite, args: Sequence[Any]) -> tuple[calls.RecordedCall, bytes]:
        encoded = calls.encode_arguments(site, args, self._handles)
        if what := values.unknowns(encoded):
            _warn(
                f"hostcall: {site.description} takes what cannot be recorded: {', '.join(what)}. A "
                "replay does not compare it.",
                level=5,
            )
        arguments = calls.encode_record(encoded)
        digest = calls.digest_of(arguments)
        with calls.LOCK:
            number = next(self._ids)
            self._in_flight.add(number)
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)
            function, began = self._number_of(site.function), next(self._ticks)
            place = (site.description, site.node, function, thread, site.ordered)
            begun = calls.RecordedCall(number, 0, *place, began, ended=0, digest=digest, checksum=0)
        return begun, arguments

    def _number_of(self, function: Any) -> int:
        """Return the number that a function keeps while it lives; 0 for None."""
        if function is None:
            return 0
        # A method is a new object whenever it is looked up.
        is_method = hasattr(function, "__func__")
        anchor, code = (function.__self__, function.__func__) if is_method else (function, None)
        key = id(anchor), id(code)
        if key not in self._functions:
            forget = self._functions.pop
            try:
                kept: Any = weakref.ref(anchor, lambda _: forget(key, None))
            except TypeError:
                kept = anchor
            self._functions[key] = next(self._numbers), kept
        return self._functions[key][0]

    def _returned(self, site: CallSite, number: int, returned: Any) -> calls.Returned:
        if site.new_handle is None:
            return calls.Returned(values.encode(returned))
        *results, last = returned
        if handle := int(np.asarray(last)):
            self._handles[handle] = number
        return calls.Returned(values.encode(results), bool(handle))

    def _end(
        self, site: CallSite, begun: calls.RecordedCall, arguments: bytes, outcome: calls.Outcome
    ) -> None:
        with calls.LOCK:
            self._in_flight.discard(begun.id)
            begun.ended = next(self._ticks)
        if self._is_over or self._failure is not None:
            return
        try:
            self._writer.write(begun, site.name, arguments, calls.encode_record(outcome))
        except calls.RecordingError as error:
            self._failure = error
            _warn(f"{error} Recording ends here.")
            return
        if isinstance(outcome, calls.Returned) and (what := values.unknowns([outcome.value])):
            _warn(
                f"hostcall: {site.description} returned what cannot be recorded: "
                f"{', '.join(what)}. A replay ends there with an error."
            )

    def close(self, _error: BaseException | None = None) -> None:
        """Close the file; raise the RecordingError of a call that could not be written."""
        self._is_over = True
        if self._process != os.getpid():
            return  # the file belongs to the parent process
        with calls.LOCK:
            left = len(self._in_flight)
        self._writer.close(complete=self._failure is None)
        if self._failure is not None:
            raise self._failure
        if names := self._selection.without_calls():
            _warn(
                f"hostcall: the recording {self.path!r} has no call of {', '.join(names)}, which "
                "only= says: no function of such a name was called.",
                level=6,
            )
        if left:
            _warn(
                f"hostcall: {counted(left, 'call')} had not ended at the end of "
                f"hostcall.record, and are not in {self.path!r}. Wait for the programs before.",
                level=6,
            )


def _warn(text: str, level: int = 4) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=level + 1)
