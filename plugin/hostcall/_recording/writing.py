"""A recording that is being written."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hostcall._recording import format as file_format
from hostcall._recording.errors import RecordingError
from hostcall._recording.format import Call
from hostcall._recording.locking import LOCK


class Writer:
    """Writes calls into a new file, each as soon as it has ended.

    Args:
      path: of the file.
      overwrite: whether it takes the place of a recording that is there.
      names: of the functions that it is of, none for all.

    Raises:
      FileExistsError: when there is a file.
      RecordingError: when it cannot be written.
    """

    def __init__(self, path: str, overwrite: bool, names: Iterable[str] = ()) -> None:
        self.path = path
        self._callbacks: dict[str, int] = {}
        self._count = 0
        if overwrite:
            _remove(path)
        _create(path)
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # No other process reads what is only half there, or writes to it.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            # What a process has written outlives it. To outlive the machine takes much longer.
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(file_format.SCHEMA)
            self._database.execute("INSERT INTO state VALUES (?, 0, 0)", [_written_by()])
            self._database.executemany("INSERT INTO only_of VALUES (?)", [(n,) for n in names])
        except sqlite3.Error as error:
            self._database.close()
            raise self._cannot_write(error) from error

    def write(self, call: Call, name: str, arguments: bytes, outcome: bytes) -> None:
        """Writes a call; its `callback` and its checksum are filled in here.

        Args:
          call: the call.
          name: of the callback.
          arguments: encoded.
          outcome: encoded.

        Raises:
          RecordingError: when there is no room on the disk, for one.
        """
        call.checksum = file_format.checksum_of(call, name, outcome)
        try:
            with LOCK, self._transaction():
                call.callback = self._callback(name)
                row = msgspec.structs.astuple(call)
                blanks = ", ".join("?" * len(row))
                self._database.execute(f"INSERT INTO calls VALUES ({blanks})", row)
                self._write_pieces(call.id, file_format.ARGUMENTS, arguments)
                self._write_pieces(call.id, file_format.OUTCOME, outcome)
                self._count += 1
        except sqlite3.Error as error:
            raise self._cannot_write(error) from error

    def close(self, complete: bool) -> None:
        """Ends the file.

        Args:
          complete: whether it holds all that was to be recorded.

        Raises:
          RecordingError: when that cannot be written.
        """
        try:
            with LOCK, contextlib.closing(self._database):
                if complete:
                    self._database.execute(
                        "UPDATE state SET complete = 1, calls = ?", [self._count]
                    )
        except sqlite3.Error as error:
            raise self._cannot_write(error) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _callback(self, name: str) -> int:
        if name not in self._callbacks:
            number = len(self._callbacks) + 1
            self._database.execute("INSERT INTO callbacks VALUES (?, ?)", (number, name))
            self._callbacks[name] = number
        return self._callbacks[name]

    def _write_pieces(self, call: int, part: int, data: bytes) -> None:
        view = memoryview(data)
        size = file_format.PIECE
        pieces: Sequence[memoryview] = [view[at : at + size] for at in range(0, len(view), size)]
        self._database.executemany(
            "INSERT INTO pieces VALUES (?, ?, ?, ?)",
            [(call, part, number, piece) for number, piece in enumerate(pieces)],
        )

    def _cannot_write(self, error: sqlite3.Error) -> RecordingError:
        return RecordingError(
            f"hostcall: the recording {self.path!r} cannot be written: {error}. It holds the "
            f"{self._count} calls that were written before."
        )


def _create(path: str) -> None:
    try:
        # At one time: of two processes that record to one file, one fails.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        raise FileExistsError(
            f"hostcall: {path!r} exists already, or another process records to it. Remove it, "
            "choose another name, or write hostcall.record(..., overwrite=True), which takes the "
            "place of a recording."
        ) from None
    except OSError as error:
        raise RecordingError(f"hostcall: {path!r} cannot be written: {error}.") from error


def _remove(path: str) -> None:
    """Removes a recording that nobody writes; any other file stays."""
    if not os.path.lexists(path):
        return
    from hostcall._recording.reading import Reader

    Reader(path).close()
    os.unlink(path)


def _written_by() -> str:
    try:
        return f"hostcall {importlib.metadata.version('hostcall')}"
    except importlib.metadata.PackageNotFoundError:
        return "hostcall"
