"""`hostcall worker`: the socket, the loop that accepts clients, and the options."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import selectors
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from hostcall import _control
from hostcall._saved.serving import metrics, session
from hostcall._saved.serving.metrics import Metrics
from hostcall._saved.serving.session import Arena
from hostcall_runtime import _permissions, _serving_wire
from hostcall_runtime._serving_wire import ClosedError, Frame, Health, Kind, ProtocolError


class ListeningError(ValueError):
    """The error of a worker that cannot listen at its path; the text has the reason."""


@contextlib.contextmanager
def listening_at(path: str) -> Iterator[socket.socket]:
    """Listen at a path, for this user alone, if no living worker has the lock beside it."""
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
                raise ListeningError(f"hostcall: {path} exists, and is not a socket.")
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
    return ListeningError(f"hostcall: no worker can listen at {path}: {error.strerror or error}.")


_log = logging.getLogger("hostcall.worker")
_HELLO_SECONDS = 10.0  # the seconds within which a client must say hello
_GRACE = 10.0  # the seconds that running calls have to end when the worker stops


class Worker:
    """A server of clients, until it is told to stop; a call passes at most `max_bytes` each way."""

    def __init__(self, max_bytes: int, max_connections: int) -> None:
        self.max_bytes = max_bytes
        self.stopping = False
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._sessions: dict[threading.Thread, socket.socket] = {}
        self.metrics = Metrics()

    def run(self, source: socket.socket, hands_over: bool) -> None:
        """Serve clients until SIGTERM or SIGINT, or until the other side of `source` is gone."""
        # Clients connect to `source`, or it is a connection that `hands_over` clients.
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

    def connections(self) -> int:
        """Return the number of clients."""
        with self._lock:
            return len(self._sessions)

    def health(self) -> Health:
        """Return the process id, the number of clients, and the figures of all calls."""
        return Health(os.getpid(), self.connections(), *self.metrics.totals)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # such as too many open files
            _log.warning("hostcall worker: no client can connect: %s", error)
            time.sleep(0.1)
            return
        if _serving_wire.is_same_user(connection):
            self._start(connection)
        else:
            _log.warning("hostcall worker: a client of another user was refused")
            connection.close()

    def _take_over(self, control: socket.socket) -> None:
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        for descriptor in descriptors:
            self._start(socket.socket(fileno=descriptor))
        # Without a descriptor, the process that started the worker is gone.
        self.stopping = self.stopping or not descriptors

    def _start(self, connection: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._lock:
            full = len(self._sessions) >= self._max_connections
            if not full:
                self._sessions[thread] = connection
        if full:
            text = f"hostcall: the worker has {self._max_connections} clients, and takes no more."
            _refuse(connection, text)
            return
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads
            _log.warning("hostcall worker: no client can connect: %s", error)
            with self._lock:
                del self._sessions[thread]
            _refuse(connection, f"hostcall: the worker takes no more clients now: {error}")

    def _serve(self, connection: socket.socket) -> None:
        try:
            _serve(connection, self)
        finally:
            with self._lock:
                del self._sessions[threading.current_thread()]

    def _end(self) -> None:
        with self._lock:
            sessions = dict(self._sessions)
        for connection in sessions.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # it can still send the results of its call
        end = time.monotonic() + _GRACE
        for thread in sessions:
            thread.join(max(end - time.monotonic(), 0))


def _serve(connection: socket.socket, worker: Worker) -> None:
    """Serve a client until it goes or violates the protocol, then close its connection alone."""
    with connection:
        try:
            _serving_wire.prepare(connection)
            _serve_frames(connection, worker)
        except ClosedError:
            pass
        except (ProtocolError, OSError) as error:
            _log.warning("hostcall worker: the connection of a client ends: %s", error)
            text = f"hostcall: the worker ends the connection: {error}"
            _send_error(connection, _serving_wire.INVALID_ARGUMENT, text)


def _refuse(connection: socket.socket, text: str) -> None:
    """Tell a client for which there is no place why, and close its connection."""
    with connection:
        _send_error(connection, _serving_wire.RESOURCE_EXHAUSTED, text)


def _send_error(connection: socket.socket, code: int, text: str) -> None:
    with contextlib.suppress(ClosedError):
        _serving_wire.send(connection, Kind.ERROR, 0, _serving_wire.encode_error(code, text))


def _serve_frames(connection: socket.socket, worker: Worker) -> None:
    frame, descriptor = _serving_wire.receive_with_descriptor(connection, _HELLO_SECONDS)
    if frame.kind == Kind.PING and descriptor is None:
        _pong(connection, worker, frame)
        return
    if descriptor is None:
        raise ProtocolError("a client has to begin with HELLO and an arena")
    with contextlib.closing(_arena(frame, descriptor, worker)) as arena:
        welcome = _serving_wire.encode_welcome(arena.limit)
        _serving_wire.send(connection, Kind.WELCOME, frame.number, welcome)
        while not worker.stopping:
            _answer(connection, worker, arena, _serving_wire.receive(connection))


def _arena(frame: Frame, descriptor: int, worker: Worker) -> Arena:
    try:
        if frame.kind != Kind.HELLO:
            raise ProtocolError("a client has to begin with HELLO")
        return Arena(descriptor, min(worker.max_bytes, _serving_wire.decode_hello(frame.body)))
    except ProtocolError:
        os.close(descriptor)
        raise


def _answer(connection: socket.socket, worker: Worker, arena: Arena, frame: Frame) -> None:
    if frame.kind == Kind.PING:
        _pong(connection, worker, frame)
        return
    if frame.kind not in (Kind.CALL, Kind.SHAPES):
        raise ProtocolError(f"no client sends frames of kind {frame.kind}")
    begin, name = time.perf_counter(), ""
    try:
        call = _serving_wire.decode_call(frame.body)
        name = session.name_of(call)
        if frame.kind == Kind.SHAPES:
            results = session.shapes(call)
        else:
            returned = session.run(call, arena.read(call.arguments))
            results = arena.write(returned, call.result_dtypes)
        kind, body = Kind.RESULTS, _serving_wire.encode_results(results)
    except (session.CallError, MemoryError, ValueError) as error:
        kind, body = Kind.ERROR, _serving_wire.encode_error(_code_of(error), str(error))
        if frame.kind == Kind.CALL:
            _log.error("hostcall worker: a call of %s has failed: %s", name or "nothing", error)
    if frame.kind == Kind.CALL:
        seconds = time.perf_counter() - begin
        worker.metrics.add(name, failed=kind == Kind.ERROR, seconds=seconds)
    _serving_wire.send(connection, kind, frame.number, body)


def _code_of(error: Exception) -> int:
    if isinstance(error, session.CallError):
        return error.code
    if isinstance(error, ValueError):  # the protocol has shapes that NumPy lacks
        return _serving_wire.INVALID_ARGUMENT
    return _serving_wire.RESOURCE_EXHAUSTED


def _pong(connection: socket.socket, worker: Worker, frame: Frame) -> None:
    health = _serving_wire.encode_health(worker.health())
    _serving_wire.send(connection, Kind.PONG, frame.number, health)


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that is readable once the process has got SIGTERM or SIGINT."""
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


def run(
    path: str | None,
    control: int | None,
    allowed: Sequence[str],
    imported: Sequence[str],
    max_bytes: int,
    connections: int,
    metrics_address: str | None,
    say: Callable[[str], None],
) -> NoReturn:
    """Run a worker until it stops; then end the process instead of returning."""
    # It listens at `path`, which `say` tells the user. Without a path, the process that started
    # this one hands clients over, by the descriptor `control`. A ValueError says that an option
    # makes no sense, or that an import has failed.
    if not _control.is_enabled():
        raise ValueError("hostcall: a worker needs what HOSTCALL_DISABLE=1 has switched off.")
    logging.basicConfig(format="%(message)s")
    _permissions.allow(*allowed)
    for module in imported:  # which may call `hostcall.provide`
        try:
            importlib.import_module(module)
        except Exception as error:  # it may raise anything
            raise ValueError(
                f"hostcall: the import of {module} has failed: {type(error).__name__}: {error}"
            ) from error
    with contextlib.ExitStack() as stack:
        if path is not None:
            source = stack.enter_context(listening_at(os.path.abspath(path)))
            listed = ", ".join(_permissions.allowed()) or "none, so that nothing can be called"
            say(f"hostcall worker: process {os.getpid()} listens at {path}. Allowed: {listed}.")
        else:
            source = stack.enter_context(_handed_over(control))
        worker = Worker(max_bytes, connections)
        if metrics_address is not None:
            place = metrics.serve(metrics_address, worker.metrics, worker.connections)
            say(f"hostcall worker: metrics for Prometheus at {place}")
        worker.run(source, hands_over=path is None)
    # Neither a function that does not end nor an exit handler of a library must keep the process.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _handed_over(control: int | None) -> socket.socket:
    try:
        source = socket.socket(fileno=control)
        os.set_inheritable(source.fileno(), False)
    except OSError as error:
        raise ListeningError(
            f"hostcall: descriptor {control} is not a connection: {error}"
        ) from error
    return source
