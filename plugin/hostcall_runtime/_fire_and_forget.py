"""`wait=False`: calls for which no program waits.

They run one by one, in the order in which they were handed over. hostcall's own thread has a queue,
and each executor has one.

A fire-and-forget function may itself run a program that hands over calls. These cannot run before
the function has returned, so the program must not wait for room: that would be a deadlock. A
context variable tells these programs, which carry it to all their threads.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import contextvars
import itertools
import numbers
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from hostcall_runtime import _errors, _locks, _runs, _threads, _watchdog
from hostcall_runtime._errors import counted

lock = _locks.new_lock()  # for errors, call logs and queues

# With the log of the call, which stands for its function.
_kept: list[tuple[Any, BaseException]] = []


def keep(log: Any, description: str, error: BaseException) -> None:
    """Hold the error that a call has raised, with a note that an earlier call has raised it."""
    note = (
        f"hostcall: raised by an earlier call, which no program waited for (wait=False), of "
        f"{description}"
    )
    notes = _errors.notes_of(error)
    if isinstance(notes, list) and note not in notes:
        error.add_note(note)
    with lock:
        _kept.append((log, error))


def take(log: Any = None) -> list[BaseException]:
    """Return and forget the held errors of one log, or of all logs, in the order of the calls."""
    if not _kept:
        return []
    with lock:
        taken = [error for of, error in _kept if log is None or of is log]
        _kept[:] = [late for late in _kept if log is not None and late[0] is not log]
        return taken


def raise_all(errors: Sequence[BaseException]) -> None:
    """Raise the error, if any, or a group of several, also of one that would end the process."""
    if not errors:
        return
    try:
        if len(errors) == 1 and isinstance(errors[0], Exception):
            raise errors[0]
        calls = counted(len(errors), "failed call")
        raise BaseExceptionGroup(f"hostcall: {calls} that no program waited for", errors)
    finally:
        del errors  # they refer to this frame


def say(errors: Sequence[BaseException]) -> None:
    """Write errors to the standard error: at exit, no caller is left that could get them."""
    for error in errors:
        text = "".join(traceback.format_exception(error))
        write_error(
            f"a call that no program waited for has failed, and no call came after it:\n{text}"
        )


def write_error(text: str) -> None:
    """Write to the standard error, if it is still open."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"hostcall: {_errors.encodable(text)}\n")
        sys.stderr.flush()


# Whether a fire-and-forget function has led to this code.
_is_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("is_inside", default=False)

WAIT = "wait"
DROP_OLDEST = "drop_oldest"


class CallLog:
    """The calls of one function, of which `size` may wait."""

    def __init__(self, size: int, when_full: str) -> None:
        self.size = size
        self.when_full = when_full  # `WAIT` or `DROP_OLDEST`, if one more call comes
        self.label = ""  # the function, with its file and line
        self.handed_over = self.run = self.errors = self.dropped = 0  # numbers of calls
        self.waiting: dict[SubmittedCall, None] = {}  # those that have not begun, the oldest first
        self.thread = 0  # that of this process on which the latest call began, or 0
        self.function: Callable[..., Any] | None = None  # kept alive
        with lock:
            _logs.add(self)

    def __reduce__(self) -> tuple[type[CallLog], tuple[object, ...]]:
        # A declaration takes its log into pickles. The copy starts without calls.
        return CallLog, (self.size, self.when_full)


class SubmittedCall(_threads.Work):
    """A fire-and-forget call; numbers follow the order in which calls were handed over."""

    def __init__(
        self, log: CallLog, function: Callable[..., Any], args: tuple[Any, ...], description: str
    ) -> None:
        super().__init__(function, args)
        self.log = log
        self.description = description
        self.number = 0
        self.queue: Queue | None = None  # which it waits in


_logs: weakref.WeakSet[CallLog] = weakref.WeakSet()


def counts(reset: bool) -> list[tuple[str, int, int, int, int, int]]:
    """Return each log's label and counts; `reset` counts from zero, running calls as new ones."""
    with lock:
        found = [
            (log.label, log.handed_over, log.run, log.errors, log.dropped, len(log.waiting))
            for log in _logs
        ]
        if reset:
            for log in _logs:
                log.handed_over -= log.run + log.dropped
                log.run = log.errors = log.dropped = 0
        return found


# Seconds after which an idle thread of an executor's queue ends. The thread of hostcall's own queue
# stays: functions may keep objects that are bound to a thread, such as a connection.
_IDLE = 5.0


class Queue:
    """A queue of fire-and-forget calls, which run one by one, here or on an executor."""

    def __init__(self, is_of_executor: bool = False) -> None:
        self.is_prepared = False
        self._calls: collections.deque[SubmittedCall] = collections.deque()
        self._running: SubmittedCall | None = None
        self._arrived = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._idle = _IDLE if is_of_executor else None
        with lock:
            _queues.add(self)

    def put(self, call: SubmittedCall) -> None:
        """Add a call once there is room for it."""
        with lock:
            dropped = self._make_room(call.log)
            call.number = next(_numbers)
            call.queue = self
            self._calls.append(call)
            try:
                self._wake()
            except BaseException:
                self._calls.remove(call)
                raise
            # Last, since Ctrl-C may interrupt this method: a call that is in the log but not in
            # the queue would occupy room for ever.
            call.log.waiting[call] = None
            call.log.handed_over += 1
        del dropped  # after the release of the lock: its arguments may have a `__del__`

    def _make_room(self, log: CallLog) -> SubmittedCall | None:
        """Make room for a call, and return the call that was dropped for it, if any."""
        if len(log.waiting) < log.size or _is_inside.get():
            return None
        if log.when_full == DROP_OLDEST:
            return _drop_oldest(log)
        _wait_until(lambda: len(log.waiting) < log.size)
        return None

    def _wake(self) -> None:
        if self._thread is not None:
            self._arrived.notify()
            return
        try:
            # A daemon: at exit `_drain` waits for the calls, and Ctrl-C can interrupt it.
            self._thread = threading.Thread(target=self._work, name="hostcall", daemon=True)
            self._thread.start()
        except BaseException:
            self._thread = None  # after Ctrl-C the thread may still start, and must end then
            raise

    def _work(self) -> None:
        while call := self._begin():
            call()
            self._end(call)
            del call  # and the objects that the frames of its error hold

    def _begin(self) -> SubmittedCall | None:
        with lock:
            if self._thread is not threading.current_thread():
                return None
            if not self._arrived.wait_for(lambda: self._calls, self._idle):
                self._thread = None
                return None
            call = self._running = self._calls.popleft()
            call.log.waiting.pop(call, None)
            _moved.notify_all()
            return call

    def _end(self, call: SubmittedCall) -> None:
        error = call.raised
        with lock:
            self._running = None
            call.log.run += 1
            if error is not None:
                error.__traceback__ = _errors.without_own_frames(error.__traceback__)
                call.log.errors += 1
                keep(call.log, call.description, error)
            _moved.notify_all()

    def leave_behind(self) -> None:
        """Leave the calls to the parent, in a forked child, even if the fork was in one of them."""
        _left_behind.append(self._calls)
        self._calls = collections.deque()
        self._thread = None

    def unfinished(self, number: int) -> list[SubmittedCall]:
        """Return the calls up to that number that have not ended, the running one first."""
        running = [] if self._running is None else [self._running]
        return [call for call in (*running, *self._calls) if call.number <= number]

    def abandon(self) -> list[SubmittedCall]:
        """Forget the calls that have not begun, and return them."""
        dropped = list(self._calls)
        self._calls.clear()
        for call in dropped:
            call.log.waiting.pop(call, None)
            call.log.dropped += 1
        return dropped


def _drop_oldest(log: CallLog) -> SubmittedCall:
    """Drop the oldest call that waits, from whichever queue: one function may be called by two."""
    oldest = next(iter(log.waiting))
    if oldest.queue is not None:
        oldest.queue._calls.remove(oldest)
    del log.waiting[oldest]
    log.dropped += 1
    _moved.notify_all()
    return oldest


# Notified whenever a call has begun, has ended or was dropped.
_moved = threading.Condition(lock)
_numbers = itertools.count(1)
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_own = Queue()
_of_providers: weakref.WeakKeyDictionary[Any, Queue] = weakref.WeakKeyDictionary()

# In a forked child, the parent's calls: finalizers of their arguments may wait for its threads.
_left_behind: list[Any] = []


def _after_fork() -> None:
    global _own, _moved
    for log in _logs:
        log.handed_over = log.run + log.dropped
        log.waiting = {}
        log.thread = 0
    for queue in list(_queues):
        queue.leave_behind()
    _queues.clear()
    _of_providers.clear()
    _moved = threading.Condition(lock)
    _own = Queue()
    take()


os.register_at_fork(after_in_child=_after_fork)


def queue_of(provider: object) -> Queue:
    """Return the queue for an executor's provider; hostcall's own queue for None."""
    if provider is None:
        return _own
    with lock:
        if provider not in _of_providers:
            _of_providers[provider] = Queue(is_of_executor=True)
        return _of_providers[provider]


def latest() -> int:
    """Return the largest number of a call that has not ended, or 0."""
    with lock:
        return max((call.number for call in _unfinished(sys.maxsize)), default=0)


def _unfinished(number: int) -> list[SubmittedCall]:
    return [call for queue in _queues for call in queue.unfinished(number)]


def _wait_until(is_so: Callable[[], bool], timeout: float | None = None) -> None:
    _locks.wait_in_parts(lambda seconds: _moved.wait_for(is_so, seconds), timeout)


def wait_for(number: int, timeout: float | None = None) -> list[SubmittedCall]:
    """Wait until the calls up to that number have ended; return those that have not in time."""
    with lock:
        _wait_until(lambda: not _unfinished(number), timeout)
        return _unfinished(number)


# Seconds until the ending process reports the calls that it waits for: at first, and then again.
_NOTICES = (5.0, 60.0)

# Functions that wait for programs in the background, each of which may hand over calls.
programs_end: list[Callable[[], object]] = []

# Python waits for executors and threads before it calls the handlers of `atexit`.
_register_early: Callable[[Callable[[], object]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_is_registered = False
_is_given_up = False


def prepare(queue: Queue, provider: Any) -> None:
    """Let the process make the queue's calls before it ends, while its executor lives."""
    # Handlers run in the reverse order of their registration. So this one is registered after those
    # of the executor's modules, which the making of the executor imports.
    global _is_registered
    if queue.is_prepared:
        return
    if provider is not None:
        provider.executor()
    if not _is_registered:
        # A later handler, too: threads that Python waits for may hand over calls after the first.
        atexit.register(_drain)
        _is_registered = True
    with contextlib.suppress(RuntimeError):  # the process is about to end
        _register_early(_drain)
    queue.is_prepared = True


def finish_programs() -> None:
    """Wait for programs that run in the background."""
    for end in programs_end:
        end()


def described(unfinished: Sequence[SubmittedCall]) -> str:
    """Describe the call that runs, with its current stack, and count the calls behind it."""
    first = unfinished[0]
    others = collections.Counter(call.log.label for call in unfinished[1:])
    text = f"It waits for a call of {first.description}"
    text += ", which runs" if first.has_begun else ""
    text += "".join(f"; {count} of {label}" for label, count in others.items())
    if first.has_begun and first.log.thread:
        text += f". This is where it is:\n{_threads.stack_of(first.log.thread, has_ended=False)}"
    return text


def _drain() -> None:
    global _is_given_up
    try:
        if not _is_given_up:
            finish_programs()
            _wait()
    except KeyboardInterrupt:
        _is_given_up = True
        _give_up()
    except Exception as error:
        say([error])
    say(take())


def _wait() -> None:
    patience, later = _NOTICES
    while unfinished := wait_for(sys.maxsize, patience):
        write_error(
            "the process ends when the calls have ended that no program waited for "
            f"(wait=False), or at Ctrl-C. {described(unfinished)}"
        )
        patience = later


def _give_up() -> None:
    with lock:
        dropped = [call for queue in _queues for call in queue.abandon()]
        _moved.notify_all()
    counts = collections.Counter(call.log.label for call in dropped)
    left = ", ".join(f"{count} of {label}" for label, count in counts.items())
    write_error(
        f"Ctrl-C: the process ends without waiting for the call that runs; calls that were never "
        f"made: {left or 'none'}."
    )


USUAL_SIZE = 16


def log_for(wait: object, queue: object, when_full: object) -> CallLog | None:
    """Return a new log for calls that are declared so, or None if programs wait for them."""
    if not isinstance(wait, bool):
        raise TypeError(f"hostcall: wait={wait!r} is neither True nor False.")
    if when_full not in (WAIT, DROP_OLDEST):
        raise ValueError(
            f'hostcall: when_full={when_full!r} is neither "{WAIT}" nor "{DROP_OLDEST}".'
        )
    if wait:
        for name, value, usual in (("queue", queue, None), ("when_full", when_full, WAIT)):
            if value != usual:
                raise ValueError(
                    f"hostcall: {name}={value!r} is for calls that no program waits for. Write "
                    f"wait=False, {name}={value!r}, or remove it."
                )
        return None
    if queue is None:
        return CallLog(USUAL_SIZE, str(when_full))
    if not isinstance(queue, numbers.Integral) or isinstance(queue, bool) or queue <= 0:
        raise ValueError(f"hostcall: queue={queue!r} is not a positive number of calls.")
    return CallLog(int(queue), str(when_full))


# For functions that are declared again at each place that calls them, as by `hostcall.jax.call`.
_logs_of: weakref.WeakValueDictionary[tuple[object, ...], CallLog] = weakref.WeakValueDictionary()


def log_of(function: Callable[..., Any], new: CallLog | None) -> CallLog | None:
    """Return the log that a function got before in place of one like this, or else this one."""
    if new is None:
        return None
    key = id(function), new.size, new.when_full
    known = _logs_of.get(key)
    if known is None:
        known = _logs_of[key] = new
        known.function = function  # so that no other object gets its id
    return known


def marking(log: CallLog, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that the thread of its calls is known, in the process that runs them."""

    def run(*args: Any) -> object:
        log.thread = threading.get_ident()
        return function(*args)

    return run


def handing_over(
    log: CallLog, function: Callable[..., Any], provider: object, description: str, label: str
) -> Callable[..., None]:
    """Return the function that raises the errors of earlier calls, and hands over its own."""
    log.label = label

    def run(*args: Any) -> None:
        _is_inside.set(True)
        _runs.executors_around.set(frozenset())  # those of who has handed it over have ended
        log.thread = 0
        number = _watchdog.begin(description, _watchdog.IN_QUEUE, lambda: log.thread)
        try:
            function(*args)
        finally:
            _watchdog.end(number)

    def hand_over(*args: Any) -> None:
        raise_all(take(log))
        queue = queue_of(provider)
        prepare(queue, provider)
        queue.put(SubmittedCall(log, run, args, description))

    return hand_over


def barrier(timeout: float | None = None) -> None:
    """Wait until all calls that were handed over before have ended.

    These are the calls of functions with `wait=False`, in TensorFlow's programs and JAX's. Errors
    that have not been raised yet are raised here.

    Args:
      timeout: how many seconds to wait, or None.

    Raises:
      TimeoutError: when the time is over. The calls go on.
      RuntimeError: when one of these calls is the caller, which would wait for itself.
      Exception: the exception object that a call has raised; several are raised as an
        `ExceptionGroup`.

    Examples:
      >>> losses = []
      >>> @hostcall.callback(result=[], wait=False)
      ... def log(loss):
      ...     losses.append(float(loss))
      >>> @tf.function(jit_compile=True)
      ... def step(x):
      ...     log(x * x)
      ...     return x + 1.0
      >>> x = step(step(1.0))
      >>> hostcall.barrier()
      >>> losses
      [1.0, 4.0]
    """
    if _is_inside.get():
        raise RuntimeError(
            "hostcall.barrier() waits for all calls that were handed over, and was called by a "
            "function that is one of these (wait=False): it would wait for itself. Call it where "
            "the program is called."
        )
    finish_programs()
    unfinished = wait_for(latest(), timeout)
    if unfinished:
        raise TimeoutError(
            f"hostcall.barrier() has waited for {timeout} s. {described(unfinished)}"
        )
    raise_all(take())
