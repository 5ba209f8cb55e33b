"""A worker: the loop that takes clients in, and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

from hostcall._serving import session
from hostcall_runtime import _worker_channel as channel
from hostcall_runtime import _worker_frames as frames
from hostcall_runtime._worker_channel import ClosedError
from hostcall_runtime._worker_frames import Health, Kind

_log = logging.getLogger("hostcall.worker")

# Calls that run when the worker shall end have so many seconds.
_GRACE = 10.0


class Worker:
    """Serves clients until it is told to stop.

    Args:
      max_bytes: the most that the arguments, or the results, of one call may have.
      max_connections: the most clients at a time.
    """

    def __init__(self, max_bytes: int, max_connections: int) -> None:
        self.max_bytes = max_bytes
        self.stopping = False
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._sessions: dict[threading.Thread, socket.socket] = {}
        self._calls = 0
        self._errors = 0

    def run(self, source: socket.socket, hands_over: bool) -> None:
        """Takes clients until SIGTERM or SIGINT, or until the other side of `source` is gone.

        Args:
          source: where clients connect to; or a connection over which they are handed over.
          hands_over: whether it is the latter.
        """
        with _signals() as told, selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            selector.register(told, selectors.EVENT_READ)
            while not self.stopping:
                ready = [key.fileobj for key, _ in selector.select()]
                if told in ready:
                    self.stopping = True
                elif hands_over:
                    self._take_over(source)
                else:
                    self._accept(source)
        self._end()

    def count(self, failed: bool) -> None:
        """Notes a call."""
        with self._lock:
            self._calls += 1
            self._errors += failed

    def health(self) -> Health:
        """What it says of itself."""
        with self._lock:
            return Health(os.getpid(), len(self._sessions), self._calls, self._errors)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # too many files are open, say
            _log.warning("hostcall worker: no client can connect: %s", error)
            time.sleep(0.1)
            return
        if channel.is_same_user(connection):
            self._start(connection)
        else:
            _log.warning("hostcall worker: a client of another user was sent away")
            connection.close()

    def _take_over(self, control: socket.socket) -> None:
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        for descriptor in descriptors:
            self._start(socket.socket(fileno=descriptor))
        # Whoever has started it is gone.
        self.stopping = self.stopping or not descriptors

    def _start(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._lock:
            full = len(self._sessions) >= self._max_connections
            if not full:
                self._sessions[thread] = connection
        if full:
            self._send_away(connection)
        else:
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            session.serve(connection, self)
        finally:
            with self._lock:
                del self._sessions[threading.current_thread()]

    def _send_away(self, connection: socket.socket) -> None:
        text = f"hostcall: the worker has {self._max_connections} clients, and takes no more."
        body = frames.encode_error(frames.RESOURCE_EXHAUSTED, text)
        with connection, contextlib.suppress(ClosedError):
            channel.send(connection, Kind.ERROR, 0, body)

    def _end(self) -> None:
        with self._lock:
            sessions = dict(self._sessions)
        for connection in sessions.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # it can still send the results of its call
        end = time.monotonic() + _GRACE
        for thread in sessions:
            thread.join(max(end - time.monotonic(), 0))


def exit_now() -> None:
    """Ends the process, whatever its threads do."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that is readable once the process has got SIGTERM or SIGINT."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        before_fd = signal.set_wakeup_fd(theirs.fileno())
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, lambda *_: None) for number in numbers]
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before_fd)
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
