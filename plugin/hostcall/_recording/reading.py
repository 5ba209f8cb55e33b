"""A recording that is read."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hostcall._recording import format as file_format
from hostcall._recording.errors import RecordingError
from hostcall._recording.format import Call, Outcome
from hostcall._recording.locking import LOCK
from hostcall._recording.values import Value

T = TypeVar("T")

_CALLS = (
    "SELECT id, callback, description, node, function, thread, ordered, began, ended, arguments, "
    "checksum FROM calls ORDER BY id"
)


class Reader:
    """Reads a file. Calls are listed at once, and their values read when they are asked for.

    Attributes:
      path: of the file.
      complete: whether it was ended; else its process has died, or has failed to write.
      names: of the callbacks, by their numbers.
      only_of: the names of the functions that it is of, none for all.
      calls: in the order in which they began.

    Raises:
      RecordingError: when there is no such file, or it is no recording, or one of another version,
        or it is damaged, or a process writes to it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise RecordingError(
                f"hostcall: there is no recording {path!r}. `with hostcall.record({path!r}):` "
                "around the calls writes one."
            )
        self._database = self._open()
        try:
            self._check_kind()
            self._read(self._list)
        except BaseException:
            self._database.close()
            raise

    def _open(self) -> sqlite3.Connection:
        place = pathlib.Path(os.path.abspath(self.path)).as_uri()
        # To open one whose process has died may mean to take back what was half written.
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        return sqlite3.connect(
            f"{place}?mode={mode}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            timeout=0,
        )

    def _check_kind(self) -> None:
        with open(self.path, "rb") as file:
            begin = file.read(16)
        if begin != b"SQLite format 3\0":
            what = "is empty" if not begin else "is another kind of file"
            raise RecordingError(f"hostcall: {self.path!r} is no recording: it {what}.")
        application = self._read(lambda: self._value("PRAGMA application_id"))
        if application != file_format.APPLICATION:
            raise RecordingError(
                f"hostcall: {self.path!r} is no recording: it is a database of something else, or "
                "its process has died before it began to record."
            )
        version = self._read(lambda: self._value("PRAGMA user_version"))
        if version != file_format.VERSION:
            raise RecordingError(
                f"hostcall: {self.path!r} is a recording of version {version}, and this hostcall "
                f"reads version {file_format.VERSION}. Use the hostcall that has written it, or "
                "record again."
            )

    def _value(self, query: str) -> Any:
        return self._database.execute(query).fetchone()[0]

    def _list(self) -> None:
        complete, count = self._database.execute("SELECT complete, calls FROM state").fetchone()
        self.complete = bool(complete)
        self.names: dict[int, str] = dict(self._database.execute("SELECT id, name FROM callbacks"))
        self.only_of: list[str] = [n for (n,) in self._database.execute("SELECT name FROM only_of")]
        rows = self._database.execute(_CALLS)
        self.calls = [
            msgspec.convert(dict(zip(Call.__struct_fields__, row, strict=True)), Call, strict=False)
            for row in rows
        ]
        unnamed = {call.callback for call in self.calls} - self.names.keys()
        if unnamed or (complete and len(self.calls) != count):
            raise ValueError(f"{count} calls were written, and {len(self.calls)} are there")

    def arguments(self, call: Call) -> list[Value]:
        """The arguments of a call.

        Raises:
          RecordingError: when they are not as they were written.
        """

        def read() -> list[Value]:
            data = self._pieces(call, file_format.ARGUMENTS)
            if file_format.digest_of(data) != call.digest:
                raise ValueError(f"the arguments of call {call.id} have changed")
            return file_format.decode_arguments(data)

        return self._read(read)

    def outcome(self, call: Call) -> Outcome:
        """What became of a call.

        Raises:
          RecordingError: when it is not as it was written.
        """

        def read() -> Outcome:
            data = self._pieces(call, file_format.OUTCOME)
            if file_format.checksum_of(call, self.names[call.callback], data) != call.checksum:
                raise ValueError(f"call {call.id} has changed")
            return file_format.decode_outcome(data)

        return self._read(read)

    def _pieces(self, call: Call, part: int) -> bytes:
        query = "SELECT data FROM pieces WHERE call = ? AND part = ? ORDER BY number"
        return b"".join(data for (data,) in self._database.execute(query, (call.id, part)))

    def warn_if_cut_off(self) -> None:
        """Warns of a file that was not ended."""
        if not self.complete:
            warnings.warn(
                f"hostcall: the recording {self.path!r} was not ended: its process has died, or "
                f"could not write any more. It holds the {len(self.calls)} calls that had ended by "
                "then.",
                RuntimeWarning,
                stacklevel=5,
            )

    def close(self) -> None:
        """Closes the file."""
        with LOCK:
            self._database.close()

    def _read(self, read: Callable[[], T]) -> T:
        try:
            with LOCK:
                return read()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise self._damaged(error) from error
            raise RecordingError(
                f"hostcall: a process records to {self.path!r}. Wait until it has ended."
            ) from error
        except (sqlite3.Error, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise self._damaged(error) from error
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> RecordingError:
        return RecordingError(
            f"hostcall: the recording {self.path!r} is damaged: {error}. Record again, or copy the "
            "file once more from where it comes from."
        )
