"""The replayer, which answers each call from a recording."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import pathlib
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hostcall._replay import calls, values
from hostcall._replay.calls import LOCK, Outcome, RecordedCall, RecordingError, ReplayError
from hostcall._replay.values import Array, Texts, Value
from hostcall_runtime import _interception
from hostcall_runtime._errors import counted
from hostcall_runtime._interception import CallSite, Function, Given

_CALLS = (
    "SELECT id, callback, description, node, function, thread, ordered, began, ended, arguments, "
    "checksum FROM calls ORDER BY id"
)

_WITH_JOURNAL = b"\1\1"  # in the header, of a database that has no log (WAL) of its changes

# The end of a journal that names another file, which SQLite then removes.
_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")

# SQLite asks after so many steps of its own whether to go on. A row takes about 40, and has more
# than 40 bytes in the file.
_STEPS = 10_000
_STEPS_ANYWAY, _STEPS_PER_BYTE = 1_000_000, 4
_SHORTEST_LIMIT = 1 << 16  # on the bytes of a value, since it is one on those of a query, too


class RecordingReader:
    """A reader of a recording. It lists the calls at once, and reads their values on demand."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise RecordingError(
                f"hostcall: there is no recording {path!r}. `with hostcall.record({path!r}):` "
                "around the calls writes one."
            )
        self._size = os.path.getsize(path)
        self._check_header()
        self._database = self._open()
        try:
            self._check_kind()
            with self._reading():
                self._list()
        except BaseException:
            self._database.close()
            raise

    def _open(self) -> sqlite3.Connection:
        place = pathlib.Path(os.path.abspath(self.path)).as_uri()
        # If its process has died, SQLite may have to roll back a half-written call.
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        database = sqlite3.connect(
            f"{place}?mode={mode}", uri=True, check_same_thread=False, timeout=0
        )
        # No value is longer than the file, whatever the file says.
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(self._size, _SHORTEST_LIMIT))
        return database

    def _check_header(self) -> None:
        """Check what has to be right before SQLite opens the file."""
        with open(self.path, "rb") as file:
            begin = file.read(20)
        if begin[:16] != b"SQLite format 3\0":
            what = "is empty" if not begin else "is another kind of file"
            raise RecordingError(f"hostcall: {self.path!r} is not a recording: it {what}.")
        if begin[18:] != _WITH_JOURNAL or _ends_with(self.path + "-journal", _NAMES_A_FILE):
            raise RecordingError(
                f"hostcall: {self.path!r} is not a recording: hostcall did not write its journal."
            )

    def _check_kind(self) -> None:
        with self._reading():
            (application,) = self._fetch("PRAGMA application_id")[0]
            (version,) = self._fetch("PRAGMA user_version")[0]
        if application != calls.APPLICATION:
            raise RecordingError(
                f"hostcall: {self.path!r} is not a recording: it is a database of something else, "
                "or its process has died before it began to record."
            )
        if version != calls.VERSION:
            raise RecordingError(
                f"hostcall: {self.path!r} is a recording of version {version}, and this hostcall "
                f"reads version {calls.VERSION}. Use the hostcall that has written it, or "
                "record again."
            )

    def _list(self) -> None:
        # In the place of a table, a view or a virtual table could run for ever.
        if not calls.has_tables(self._fetch(calls.SELECT_SCHEMA)):
            raise ValueError("its tables are not those of a recording")
        ((complete, count),) = self._fetch("SELECT complete, calls FROM state")
        self.complete = bool(complete)
        self.names: dict[int, str] = dict(self._fetch("SELECT id, name FROM callbacks ORDER BY id"))
        self.only_of: list[str] = [name for (name,) in self._fetch("SELECT name FROM only_of")]
        rows = self._fetch(_CALLS)
        self.calls = [
            msgspec.convert(
                dict(zip(RecordedCall.__struct_fields__, row, strict=True)),
                RecordedCall,
                strict=False,
            )
            for row in rows
        ]
        unnamed = {call.callback for call in self.calls} - self.names.keys()
        if unnamed or (complete and len(self.calls) != count):
            raise ValueError(f"{count} calls were written, and {len(self.calls)} are there")

    def arguments(self, call: RecordedCall) -> list[Value]:
        """Return the arguments of a call; raise RecordingError if they have changed."""
        with self._reading():
            data = self._pieces(call, calls.ARGUMENTS)
            if calls.digest_of(data) != call.digest:
                raise ValueError(f"the arguments of call {call.id} have changed")
            return calls.decode_arguments(data)

    def outcome(self, call: RecordedCall) -> Outcome:
        """Return the outcome of a call; raise RecordingError if it has changed."""
        with self._reading():
            data = self._pieces(call, calls.OUTCOME)
            if calls.checksum_of(call, self.names[call.callback], data) != call.checksum:
                raise ValueError(f"call {call.id} has changed")
            return calls.decode_outcome(data)

    def _pieces(self, call: RecordedCall, part: int) -> bytes:
        query = "SELECT data FROM pieces WHERE call = ? AND part = ? ORDER BY number"
        return b"".join(data for (data,) in self._fetch(query, call.id, part))

    def _fetch(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query; raise a ValueError for more than the file can hold."""
        # Pages that refer to one another may have far more rows than the file has bytes.
        most = _STEPS_ANYWAY + _STEPS_PER_BYTE * self._size
        taken = itertools.count(_STEPS, _STEPS)
        self._database.set_progress_handler(lambda: next(taken) > most, _STEPS)
        rows, left = [], self._size
        for row in self._database.execute(query, parameters):
            left -= _bytes_of(row)
            if left < 0:
                raise ValueError("it says more than a file of its size can hold")
            rows.append(row)
        return rows

    def close(self) -> None:
        """Close the file."""
        with LOCK:
            self._database.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with LOCK:
                yield
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise self._damaged(error) from error
            raise RecordingError(
                f"hostcall: a process records to {self.path!r}. Wait until it has ended."
            ) from error
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> RecordingError:
        return RecordingError(
            f"hostcall: the recording {self.path!r} is damaged: {error}. Record again, or copy the "
            "file once more from where it comes from."
        )


# What a file may make others raise that read it.
_DAMAGE = (
    *(sqlite3.Error, msgspec.DecodeError, TypeError, ValueError),
    *(RecursionError, MemoryError, OverflowError),
)


def _ends_with(path: str, end: bytes) -> bool:
    """Return whether there is a file that ends with these bytes."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - len(end), 0))
        return file.read() == end


def _bytes_of(row: Iterable[object]) -> int:
    """Return the fewest bytes that a row takes in a file."""
    return sum(len(value) if isinstance(value, str | bytes) else 1 for value in row)


_Calls = collections.OrderedDict[int, RecordedCall]

# The number of calls with the same arguments that are compared, to tell whether they are alike.
_MANY_ALIKE = 64


class PendingCalls:
    """The recorded calls of one callback that have not been replayed.

    Calls that were made one after the other come in this order again. Calls that overlapped, and
    calls without program order, are identified by their arguments.
    """

    def __init__(self, calls: Iterable[RecordedCall]) -> None:
        self.calls: _Calls = collections.OrderedDict((call.id, call) for call in calls)
        self._ordered: _Calls = collections.OrderedDict()
        # Those without program order, by the digest of their arguments and their node.
        self._free: dict[bytes, dict[str, _Calls]] = {}
        for call in self.calls.values():
            self._alike(call)[call.id] = call
        self.count = len(self.calls)  # of recorded calls
        self._numbers = {number: place for place, number in enumerate(self.calls, 1)}

    def take(self, call: RecordedCall) -> None:
        """Remove a call, because it is being replayed."""
        del self.calls[call.id]
        del self._alike(call)[call.id]

    def _alike(self, call: RecordedCall) -> _Calls:
        if call.ordered:
            return self._ordered
        by_node = self._free.setdefault(call.digest, {})
        return by_node.setdefault(call.node, collections.OrderedDict())

    def number_of(self, call: RecordedCall) -> int:
        """Return a call's position among the calls of this callback, from 1."""
        return self._numbers[call.id]

    def meant(self, digest: bytes, node: str) -> list[RecordedCall]:
        """Return the calls that may be meant by one with this digest of arguments; take the first.

        They are of this node if any of its calls may come now. The others belong to other functions
        with the same name, which cannot be told apart.
        """
        by_node = self._free.get(digest, {})
        in_order = [call for call in self._next_in_order() if call.digest == digest]
        possible = [call for call in in_order if call.node == node]
        possible += itertools.islice(by_node.get(node, {}).values(), _MANY_ALIKE)
        if not possible:
            possible = in_order
            for alike in by_node.values():
                possible += itertools.islice(alike.values(), _MANY_ALIKE)
        possible = sorted(possible, key=lambda call: call.id)[:_MANY_ALIKE]
        if not possible:
            return []
        first, *others = possible
        return [first, *(other for other in others if _may_change_places(first, other))]

    def _next_in_order(self) -> Iterable[RecordedCall]:
        """Yield the ordered calls that may come now: those that need no other call before them."""
        first_end: int | None = None
        for call in self._ordered.values():
            if first_end is not None and call.began > first_end:
                return
            yield call
            first_end = call.ended if first_end is None else min(first_end, call.ended)

    def expected(self) -> RecordedCall | None:
        """Return the call that is likeliest to come next, or None if none is left."""
        return next(itertools.chain(self._ordered.values(), self.calls.values()), None)


def _may_change_places(first: RecordedCall, other: RecordedCall) -> bool:
    """Return whether another run may make `other` before `first`."""
    if first.function == other.function:
        return False
    return first.thread != other.thread or other.began < first.ended


_LONGEST = 60  # the number of characters shown of a value


def first_difference(recorded: Sequence[Value], got: Sequence[Value]) -> str:
    """Return a sentence about the first difference between two calls' arguments, or ""."""
    if len(recorded) != len(got):
        before, now = counted(len(recorded), "argument"), counted(len(got), "argument")
        return f"It was recorded with {before}, and has {now}."
    for index, (one, other) in enumerate(zip(recorded, got, strict=True)):
        if difference := _between(one, other):
            return f"Argument {index}{difference}."
    return ""


def _between(recorded: Value, got: Value) -> str:
    if not isinstance(recorded, Array | Texts) or not isinstance(got, Array | Texts):
        return "" if recorded == got else f": recorded {recorded}, got {got}"
    one, other = values.to_array(recorded), values.to_array(got)
    if one.dtype != other.dtype:
        was = f"{one.dtype} of shape {one.shape}"
        return f": recorded {was}, got {other.dtype} of shape {other.shape}"
    if one.shape != other.shape:
        return f": recorded shape {one.shape}, got {other.shape} ({one.dtype})"
    where = _differing(one, other)
    if where is None:
        return ""
    place = f", element {list(map(int, where))}" if where else ""
    return f"{place}: recorded {_shown(one[where])}, got {_shown(other[where])} ({one.dtype})" + (
        _bits(one[where], other[where])
    )


def _differing(one: np.ndarray, other: np.ndarray) -> tuple[Any, ...] | None:
    """Return the index of the first element with different bits, or None."""
    if one.dtype == object:
        pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        flat = [type(a) is not type(b) or a != b for a, b in pairs]
    elif one.dtype.itemsize == 0 or one.size == 0:
        return None
    else:
        raw = [np.frombuffer(a.tobytes(), np.uint8).reshape(one.size, -1) for a in (one, other)]
        flat = (raw[0] != raw[1]).any(axis=1).tolist()
    return tuple(np.unravel_index(flat.index(True), one.shape)) if True in flat else None


def _shown(value: object) -> str:
    if isinstance(value, np.str_ | np.bytes_):
        value = value.item()
    text = repr(value) if isinstance(value, bytes | str) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _bits(one: Any, other: Any) -> str:
    """Describe the bits of two values that print the same, for example NaNs."""
    if _shown(one) != _shown(other):
        return ""
    texts = [
        value.tobytes()[::-1].hex() if isinstance(value, np.generic) else f"{len(value)} long"
        for value in (one, other)
    ]
    return f", whose bits are {texts[0]} and {texts[1]}"


_WHY = (
    "What the program computes before this call is not what it was, or the program, its inputs or "
    "its seeds have changed."
)


class Replayer:
    """An interceptor that answers calls from a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reader = RecordingReader(path)
        self._selection = calls.Selection(self._reader.only_of or None)
        self._process = os.getpid()
        of_callback: dict[int, list[RecordedCall]] = {number: [] for number in self._reader.names}
        for call in self._reader.calls:
            of_callback[call.callback].append(call)
        self._queues = {
            name: PendingCalls(of_callback[number]) for number, name in self._reader.names.items()
        }
        # The recorded call that each new handle stands for.
        self._handles: dict[int, int] = {}
        self._failure: ReplayError | None = None
        self._is_over = False
        if not self._reader.complete:
            warnings.warn(
                f"hostcall: the recording {path!r} was not ended: its process has died, or could "
                f"not write any more. It holds the {len(self._reader.calls)} calls that had ended "
                "by then.",
                RuntimeWarning,
                stacklevel=5,
            )

    def call(self, site: CallSite, function: Function, args: Sequence[Any], given: Given) -> object:
        """Return or raise the outcome of the recorded call; see `Interceptor`."""
        if self._is_over or _interception.is_within_call() or not self._selection.has(site):
            return function(*args, **given)
        if self._process != os.getpid():
            raise ReplayError(
                f"hostcall: {site.description} is called in a forked process, and hostcall.replay "
                "began in the process that it was forked from. Replay a recording of its own there."
            )
        try:
            with _interception.within_call():  # garbage collection may run the user's code here
                call, outcome = self._take(site, args)
                return self._answer(site, call, outcome, given)
        except ReplayError as error:
            with LOCK:
                self._failure = self._failure or error
            raise

    def _take(self, site: CallSite, args: Sequence[Any]) -> tuple[RecordedCall, Outcome]:
        encoded = calls.encode_arguments(site, args, self._handles)
        digest = calls.digest_of(calls.encode_record(encoded))
        with LOCK:
            if self._failure is not None:
                raise ReplayError(f"{self._failure} This is a later call of {site.description}.")
            queue = self._queue(site)
            meant = queue.meant(digest, site.node)
            if not meant:
                later = next((c for c in queue.calls.values() if c.digest == digest), None)
                raise ReplayError(self._no_such_call(site, queue, encoded, later))
            outcome = self._reader.outcome(meant[0])
            for other in meant[1:]:
                if self._reader.outcome(other) != outcome:
                    raise ReplayError(self._ambiguous(site, queue, meant[0], other))
            queue.take(meant[0])
        return meant[0], outcome

    def _queue(self, site: CallSite) -> PendingCalls:
        """Return the calls of the function of this name, or of the only one with a name alike."""
        queue = self._queues.get(site.name)
        if queue is None:
            same = [name for name in self._queues if calls.are_alike(name, site.name)]
            queue = self._queues[same[0]] if len(same) == 1 else None
        if queue is None:
            known = ", ".join(sorted(self._queues)) or "none"
            raise ReplayError(
                f"hostcall: {site.description} is called, and the recording {self.path!r} has no "
                f"call of a function named {site.name!r}. It has calls of: {known}. If the "
                "function was renamed or moved, give it a name that stays: "
                "hostcall.callback(..., name=...)."
            )
        return queue

    def _answer(
        self, site: CallSite, call: RecordedCall, outcome: Outcome, given: Mapping[str, Any]
    ) -> object:
        if isinstance(outcome, calls.Raised):
            raise calls.decode(outcome)
        try:
            if isinstance(outcome, calls.Wrote):
                self._write(outcome, calls.outs_of(given))
                return None
            returned = values.decode(outcome.value, site.to_tensor)
        except ValueError as error:
            raise ReplayError(
                f"hostcall: {self._named(site, call)} cannot be answered from {self.path!r}: "
                f"{error}."
            ) from error
        if site.new_handle is None:
            return returned
        handle = 0
        if outcome.has_handle:
            handle = site.new_handle()
            self._handles[handle] = call.id
        return [*returned, np.asarray(handle, np.int64)]

    def _write(self, outcome: calls.Wrote, outs: Sequence[Any]) -> None:
        results = [values.decode(value) for value in outcome.results]
        for result, out in zip(results, outs, strict=True):
            if result.dtype != out.dtype or result.shape != out.shape:
                raise ValueError(
                    f"a result of it was {result.dtype} of shape {result.shape}, and the program "
                    f"wants {out.dtype} of shape {out.shape}"
                )
            out[...] = result

    def _no_such_call(
        self, site: CallSite, queue: PendingCalls, got: list[Value], later: RecordedCall | None
    ) -> str:
        expected = queue.expected()
        if expected is None:
            cut_off = "" if self._reader.complete else " The recording was cut off there."
            return (
                f"hostcall: {site.description} is called once more than in the recording "
                f"{self.path!r}, which has {counted(queue.count, 'call')} of it.{cut_off} {_WHY}"
            )
        recorded = self._reader.arguments(expected)
        difference = first_difference(recorded, got)
        if later is not None:
            difference += (
                f" Call {queue.number_of(later)} has these arguments: the calls come in another "
                "order. Where that does not matter, as in the parallel map of a dataset, say "
                "stateful=False of the function, and record again."
            )
        left = len(queue.calls)
        among = "" if expected.ordered else f"None of the {left} calls that are left fits. "
        return (
            f"hostcall: {self._named(site, expected)} differs from the recording {self.path!r}. "
            f"{among}{difference} {_WHY}"
        )

    def _named(self, site: CallSite, call: RecordedCall) -> str:
        name = self._reader.names[call.callback]
        return f"call {self._queues[name].number_of(call)} of {name} ({site.description})"

    def _ambiguous(
        self, site: CallSite, queue: PendingCalls, one: RecordedCall, other: RecordedCall
    ) -> str:
        return (
            f"hostcall: {site.description} is called, and in the recording {self.path!r} calls "
            f"{queue.number_of(one)} and {queue.number_of(other)} of it have these arguments and "
            "are of two functions with the same name, which returned different results. Nothing "
            "tells which of them this is: give each a name of its own, "
            "hostcall.callback(..., name=...), or declare them stateful, and record again."
        )

    def close(self, error: BaseException | None) -> None:
        """End the replay, which `error` ends, or None."""
        # It is a ReplayError that a call differed from the recording, unless `error` is unrelated;
        # without `error`, also that recorded calls were not made.
        self._is_over = True
        failure = self._failure
        if self._process == os.getpid():
            self._reader.close()
        if failure is not None and (error is None or str(failure) in str(error)):
            raise failure from (None if error is failure else error)
        if error is None and (left := self._left()):
            raise ReplayError(left)

    def _left(self) -> str:
        left = [(name, queue) for name, queue in self._queues.items() if queue.calls]
        if not left:
            return ""
        counts = ", ".join(f"{counted(len(queue.calls), 'call')} of {name}" for name, queue in left)
        _, name, queue = min((next(iter(queue.calls)), name, queue) for name, queue in left)
        call = next(iter(queue.calls.values()))
        return (
            f"hostcall: the recording {self.path!r} has calls that were not made again: {counts}. "
            f"The first is call {queue.number_of(call)} of {name} ({call.description}). The "
            "program has ended earlier or has taken another branch, or the functions themselves, "
            "which are not run now, have made these calls."
        )
