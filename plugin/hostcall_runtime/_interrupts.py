"""Ctrl-C and the locks of Python's own library.

Python raises KeyboardInterrupt on the main thread between any two of its instructions. In
`threading` and `concurrent.futures` some of these lie between the moment a lock is taken and the
`with` that gives it back: the lock is never given back, and whoever needs it next waits for ever.
"""

from __future__ import annotations

import concurrent.futures
import signal
import threading
from types import FrameType
from typing import Any

from hostcall_runtime._executor_types import Future


class Postponed:
    """A context in which Ctrl-C waits; it comes when the context ends.

    For what ends soon.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python handles no signals there
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        came, self._came = self._came, None
        if came is not None:
            self._handler(*came)


class Flag:
    """What `threading.Event` is, for one thread that waits, by a lock that nobody else needs."""

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Lets the thread go on; once."""
        self._is_set = True
        self._lock.release()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Whether it was set; waits for that."""
        return self._is_set or self._lock.acquire(timeout=-1 if seconds is None else seconds)


class Ended:
    """Whether a future has a result, an exception, or was cancelled."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._flag: Flag | None = None
        if isinstance(future, concurrent.futures.Future):
            self._flag = flag = Flag()
            future.add_done_callback(lambda _: flag.set())

    def wait(self, seconds: float | None) -> bool:
        """Whether that is so; waits for it."""
        if self._flag is not None:
            return self._flag.wait(seconds)
        try:
            self._future.exception(seconds)
        except concurrent.futures.TimeoutError:
            return False
        except concurrent.futures.CancelledError:
            return True
        return True
