"""Queues of calls that nobody waits for: in which order they run, and who has to wait for room.

There is one queue for the calls that a thread of hostcall's makes, and one for each executor. Each
has a thread, which makes one call after another, or has the executor make them.
"""

from __future__ import annotations

import collections
import itertools
import os
import sys
import threading
import time
import weakref
from typing import Any

from hostcall_runtime import _late_errors, _waiting_threads
from hostcall_runtime._unawaited_calls import DROP_OLDEST, Call, Line
from hostcall_runtime._unawaited_calls import lock as _lock

# Seconds after which the thread of an executor's queue ends that has nothing to do. The one of
# hostcall's own stays: functions may keep what is for one thread alone, such as a connection.
_IDLE = 5.0

# Seconds without the end of any call after which it is asked whether a call waits for itself.
_PATIENCE = 1.0


class Queue:
    """Calls that run one by one.

    Args:
      is_of_executor: whether an executor makes them.

    Attributes:
      is_prepared: whether the end of the process waits for its calls.
    """

    def __init__(self, is_of_executor: bool = False) -> None:
        self.is_prepared = False
        self._calls: collections.deque[Call] = collections.deque()
        self._running: Call | None = None
        self._arrived = threading.Condition(_lock)
        self._thread: threading.Thread | None = None
        self._idle = _IDLE if is_of_executor else None
        with _lock:
            _queues.add(self)

    def put(self, call: Call) -> None:
        """Adds a call, when there is room for it."""
        with _lock:
            dropped = self._make_room(call.line)
            call.number = next(_numbers)
            self._calls.append(call)
            try:
                self._wake()
            except BaseException:
                self._calls.remove(call)
                raise
            # After the rest, which Ctrl-C may cut off from this: a call that waits here and not
            # there would take away room for ever.
            call.line.waiting[call] = None
            call.line.handed_over += 1
        del dropped  # without the lock: its arguments may have a `__del__`

    def _make_room(self, line: Line) -> Call | None:
        """Returns the call that had to go, if one had."""
        if len(line.waiting) < line.size or _waiting_threads.is_inside():
            return None
        if line.when_full == DROP_OLDEST:
            return self._drop_oldest(line)
        with _waiting_threads.one_more() as waiting:
            while len(line.waiting) >= line.size:
                if not _moved.wait(_PATIENCE) and waiting.may_be_nested():
                    break
        return None

    def _drop_oldest(self, line: Line) -> Call:
        oldest = next(iter(line.waiting))
        self._calls.remove(oldest)
        del line.waiting[oldest]
        line.dropped += 1
        _moved.notify_all()
        return oldest

    def _wake(self) -> None:
        if self._thread is not None:
            self._arrived.notify()
            return
        try:
            # A daemon: at exit somebody waits for the calls, who can be interrupted.
            self._thread = threading.Thread(target=self._work, name="hostcall", daemon=True)
            self._thread.start()
        except BaseException:
            self._thread = None  # after Ctrl-C it may start all the same, and must not go on
            raise

    def _work(self) -> None:
        while call := self._begin():
            error = call.run()
            self._end(call, error)
            del call, error  # with all that its frames hold

    def _begin(self) -> Call | None:
        with _lock:
            if self._thread is not threading.current_thread():
                return None
            if not self._arrived.wait_for(lambda: self._calls, self._idle):
                self._thread = None
                return None
            call = self._running = self._calls.popleft()
            call.line.waiting.pop(call, None)
            _moved.notify_all()
            return call

    def _end(self, call: Call, error: BaseException | None) -> None:
        with _lock:
            self._running = None
            call.line.run += 1
            if error is not None:
                call.line.errors += 1
                _late_errors.keep(call.line, call.description, error)
            _moved.notify_all()

    def leave_behind(self) -> None:
        """In a forked child: if the fork was in a call, this thread makes no other one of these."""
        _left_behind.append(self._calls)
        self._calls = collections.deque()
        self._thread = None

    def unfinished(self, number: int) -> list[Call]:
        """The calls up to that number that have not ended, the running one first."""
        running = [] if self._running is None else [self._running]
        return [call for call in (*running, *self._calls) if call.number <= number]

    def abandon(self) -> list[Call]:
        """Forgets the calls that have not begun, and returns them."""
        dropped = list(self._calls)
        self._calls.clear()
        for call in dropped:
            call.line.waiting.pop(call, None)
            call.line.dropped += 1
        return dropped


# Notified whenever a call has begun, has ended or was dropped.
_moved = threading.Condition(_lock)
_numbers = itertools.count(1)
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_own = Queue()
_of_providers: weakref.WeakKeyDictionary[Any, Queue] = weakref.WeakKeyDictionary()

# The parent's calls in a forked child: finalizers of their arguments may wait for its threads.
_left_behind: list[Any] = []


def _after_fork() -> None:
    global _own, _moved
    for queue in list(_queues):
        queue.leave_behind()
    _queues.clear()
    _of_providers.clear()
    _moved = threading.Condition(_lock)
    _own = Queue()
    _late_errors.take()


os.register_at_fork(after_in_child=_after_fork)


def queue_of(provider: Any) -> Queue:
    """The queue for an executor's provider; hostcall's own for None."""
    if provider is None:
        return _own
    with _lock:
        if provider not in _of_providers:
            _of_providers[provider] = Queue(is_of_executor=True)
        return _of_providers[provider]


def latest() -> int:
    """The number up to which calls have been handed over."""
    with _lock:
        return max((call.number for call in _unfinished(sys.maxsize)), default=0)


def _unfinished(number: int) -> list[Call]:
    return [call for queue in _queues for call in queue.unfinished(number)]


def wait_for(number: int, timeout: float | None = None) -> list[Call]:
    """Waits until the calls up to that number have ended.

    Returns:
      Those that have not when the time is over, for each queue those that run first.

    Raises:
      RuntimeError: when one of them waits for this.
    """
    end = None if timeout is None else time.monotonic() + timeout
    with _lock, _waiting_threads.one_more() as waiting:
        while unfinished := _unfinished(number):
            left = _PATIENCE if end is None else end - time.monotonic()
            if left <= 0:
                return unfinished
            if not _moved.wait(min(left, _PATIENCE)) and waiting.may_be_nested():
                raise RuntimeError(_late_errors.INSIDE)
    return []


def abandon() -> list[Call]:
    """Forgets all calls that have not begun, and returns them."""
    with _lock:
        dropped = [call for queue in _queues for call in queue.abandon()]
        _moved.notify_all()
        return dropped
