"""The socket at which a worker listens for clients."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator


class ListeningError(ValueError):
    """A worker cannot listen where it shall; the text says why."""


@contextlib.contextmanager
def listening_at(path: str) -> Iterator[socket.socket]:
    """A socket at a path, which nobody but this user can connect to.

    A socket that a dead worker has left behind is replaced. A living one holds the lock beside it.

    Raises:
      ListeningError: when another worker listens there, or the path is none for a socket.
    """
    with _locked(path):
        listener = _bound(path)
        try:
            yield listener
        finally:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(path + ".lock", flags, 0o600)
    except OSError as error:
        raise _cannot_listen(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ListeningError(
            f"hostcall: another worker listens at {path}. End it first, or take another path."
        ) from error
    finally:
        os.close(lock)


def _bound(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise ListeningError(f"hostcall: {path} is there, and is no socket.")
            os.unlink(path)  # of a dead worker
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _cannot_listen(path, error) from error
    except ListeningError:
        listener.close()
        raise
    return listener


def _cannot_listen(path: str, error: OSError) -> ListeningError:
    reason = error.strerror or error
    return ListeningError(f"hostcall: no worker can listen at {path}: {reason}.")
