"""`wait=False`: calls for which no program waits.

A function that nobody waits for may run a program that hands over calls of its own. No call runs
before the function has returned, so that such a program must not wait for room. On the thread of
the function that is easily told. But a program may make its calls on threads of XLA's and
TensorFlow's, of which nobody knows who has started the program. There it is found out by counting.

There is one queue for the calls that a thread of hostcall's makes, and one for each executor. Each
has a thread, which makes one call after another, or has the executor make them.

The program hands over what a function is to be called with, and goes on. The calls run one by one,
in the order in which they were handed over.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import itertools
import numbers
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hostcall_runtime import _deferred_errors, _errors, _interception, _library, _locks, _threads

_runtime = _library.load("hostcall_runtime._runtime")

_PYTHON = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

_inside = threading.local()
# The threads of Python's on which such functions run.
_functions: set[int] = set()
# Of threads that Python has not started, the one that has waited longest first.
_waiting: list[Waiting] = []


def noting_thread(
    function: Callable[..., Any], note: Callable[[int], object]
) -> Callable[..., Any]:
    """`function`, which nobody waits for: while it runs, this is known of its thread.

    Args:
      function: the function.
      note: takes the id of the thread.
    """

    def run(*args: Any) -> Any:
        thread = threading.get_ident()
        if is_inside():
            return function(*args)
        note(thread)
        _inside.is_so = True
        _functions.add(thread)
        try:
            return function(*args)
        finally:
            _inside.is_so = False
            _functions.discard(thread)

    return run


def is_inside() -> bool:
    """Whether this thread runs such a function."""
    return getattr(_inside, "is_so", False)


class Waiting:
    """A thread that waits until calls have ended."""

    def may_be_nested(self) -> bool:
        """Whether one of those that wait was started by a function that nobody waits for.

        It is told for the one that has waited longest, if more wait than Python's other threads
        can have started: each of these waits for one program at a time, or for none.
        """
        return bool(_waiting) and _waiting[0] is self and len(_waiting) > _starters()


@contextlib.contextmanager
def one_more() -> Iterator[Waiting]:
    """Counts this thread among those that wait, if Python has not started it."""
    waiting = Waiting()
    if not _is_pythons(threading.current_thread()):
        _waiting.append(waiting)
    try:
        yield waiting
    finally:
        if waiting in _waiting:
            _waiting.remove(waiting)


def forget() -> None:
    """In a forked child nobody waits."""
    _waiting.clear()
    _functions.clear()


os.register_at_fork(after_in_child=forget)


def _is_pythons(thread: threading.Thread) -> bool:
    return not isinstance(thread, threading._DummyThread)


def _starters() -> int:
    """How many threads of Python's may run a program that does not belong to such a function."""
    threads = [thread.ident for thread in threading.enumerate() if _is_pythons(thread)]
    return sum(not (thread in _functions or _waits_in_python(thread or 0)) for thread in threads)


def _waits_in_python(thread: int) -> bool:
    """Whether the thread is in Python's own library, as those are that wait for a lock or work."""
    stack = _runtime.stack_of(thread)
    file = stack[0][0].f_code.co_filename if stack else ""
    return file.startswith(_PYTHON) and not any(part in file for part in _PACKAGES)


WAIT = "wait"
DROP_OLDEST = "drop_oldest"

# Of the queues too.
lock = _locks.new_lock()


class Line:
    """The calls of one function.

    Attributes:
      size: how many of them may wait.
      when_full: what becomes of one more: `WAIT` or `DROP_OLDEST`.
      label: the function, with its file and line.
      handed_over, run, errors, dropped: how many calls there were, how many have ended, how many of
        those have failed, and how many will never run.
      waiting: those that have not begun, the oldest first.
      thread: the id of the thread of this process on which the latest has begun, or 0.
    """

    def __init__(self, size: int, when_full: str) -> None:
        self.size = size
        self.when_full = when_full
        self.label = ""
        self.handed_over = self.run = self.errors = self.dropped = 0
        self.waiting: dict[Call, None] = {}
        self.thread = 0
        with lock:
            _lines.add(self)

    def __reduce__(self) -> Any:
        # With a declaration it may get into a pickle, where nothing was called yet.
        return Line, (self.size, self.when_full)

    def counts(self) -> tuple[str, int, int, int, int, int]:
        """See `counts` of this module."""
        waiting = len(self.waiting)
        return self.label, self.handed_over, self.run, self.errors, self.dropped, waiting

    def leave_calls_behind(self) -> None:
        """In a forked child: the parent's calls are the parent's."""
        self.handed_over = self.run + self.dropped
        self.waiting = {}
        self.thread = 0


class Call:
    """A call that is to be made.

    Attributes:
      line: those of the same function.
      description: what errors call it.
      number: in the order in which calls were handed over.
      has_begun: whether it runs, or has run.
    """

    def __init__(
        self, line: Line, function: Callable[..., Any], args: tuple[Any, ...], description: str
    ) -> None:
        self.line = line
        self.description = description
        self.number = 0
        self._work: tuple[Callable[..., Any], tuple[Any, ...]] | None = (function, args)

    @property
    def has_begun(self) -> bool:
        return self._work is None

    def run(self) -> BaseException | None:
        """Makes it; what it raises, if anything."""
        assert self._work is not None
        function, args = self._work
        self._work = None  # the arguments are the function's alone
        try:
            function(*args)
        except BaseException as error:
            error.__traceback__ = _errors.without_own_frames(error.__traceback__)
            return error
        return None


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _after_fork() -> None:
    for line in _lines:
        line.leave_calls_behind()


os.register_at_fork(after_in_child=_after_fork)


def counts(reset: bool) -> list[tuple[str, int, int, int, int, int]]:
    """What has become of the calls, for each function.

    Args:
      reset: whether to count from zero again; calls that have not ended count as new ones.

    Returns:
      For each line its label, and how many calls were handed over, have run, have failed, were
      dropped, and wait.
    """
    with lock:
        found = [line.counts() for line in _lines]
        if reset:
            for line in _lines:
                line.handed_over -= line.run + line.dropped
                line.run = line.errors = line.dropped = 0
        return found


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
        self._arrived = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._idle = _IDLE if is_of_executor else None
        with lock:
            _queues.add(self)

    def put(self, call: Call) -> None:
        """Adds a call, when there is room for it."""
        with lock:
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
        if len(line.waiting) < line.size or is_inside():
            return None
        if line.when_full == DROP_OLDEST:
            return self._drop_oldest(line)
        with one_more() as waiting:
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
        with lock:
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
        with lock:
            self._running = None
            call.line.run += 1
            if error is not None:
                call.line.errors += 1
                _deferred_errors.keep(call.line, call.description, error)
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
_moved = threading.Condition(lock)
_numbers = itertools.count(1)
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_own = Queue()
_of_providers: weakref.WeakKeyDictionary[Any, Queue] = weakref.WeakKeyDictionary()

# The parent's calls in a forked child: finalizers of their arguments may wait for its threads.
_left_behind: list[Any] = []


def _forget_queues() -> None:
    global _own, _moved
    for queue in list(_queues):
        queue.leave_behind()
    _queues.clear()
    _of_providers.clear()
    _moved = threading.Condition(lock)
    _own = Queue()
    _deferred_errors.take()


os.register_at_fork(after_in_child=_forget_queues)


def queue_of(provider: Any) -> Queue:
    """The queue for an executor's provider; hostcall's own for None."""
    if provider is None:
        return _own
    with lock:
        if provider not in _of_providers:
            _of_providers[provider] = Queue(is_of_executor=True)
        return _of_providers[provider]


def latest() -> int:
    """The number up to which calls have been handed over."""
    with lock:
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
    with lock, one_more() as waiting:
        while unfinished := _unfinished(number):
            left = _PATIENCE if end is None else end - time.monotonic()
            if left <= 0:
                return unfinished
            if not _moved.wait(min(left, _PATIENCE)) and waiting.may_be_nested():
                raise RuntimeError(_deferred_errors.INSIDE)
    return []


def abandon() -> list[Call]:
    """Forgets all calls that have not begun, and returns them."""
    with lock:
        dropped = [call for queue in _queues for call in queue.abandon()]
        _moved.notify_all()
        return dropped


# Seconds after which it is said what the end of the process waits for: at first, and then again.
_NOTICES = (5.0, 60.0)

# What has programs end that run in the background, each of which may hand over calls.
programs_end: list[Callable[[], object]] = []

# Python waits for executors and threads before it calls what `atexit` has.
_register_early: Callable[[Callable[[], object]], object] = getattr(
    threading, "_register_atexit", atexit.register
)
_is_registered = False
_is_given_up = False


def prepare(queue: Queue, provider: Any) -> None:
    """Has the queue's calls made before the process ends, and its executor lives as long.

    Handlers run in the reverse order of their registration, so that it comes after those of what
    the executor consists of: making an executor imports that.
    """
    global _is_registered
    if queue.is_prepared:
        return
    if provider is not None:
        provider.executor()
    if not _is_registered:
        # Threads that Python waits for may hand over calls after the first.
        atexit.register(_drain)
        _is_registered = True
    with contextlib.suppress(RuntimeError):  # where the process is about to end
        _register_early(_drain)
    queue.is_prepared = True


def finish_programs() -> None:
    """Waits for programs that run in the background."""
    for end in programs_end:
        end()


def described(unfinished: Sequence[Call]) -> str:
    """What is being waited for: the call that runs, where it is, and how many come after it."""
    first = unfinished[0]
    others = collections.Counter(call.line.label for call in unfinished[1:])
    text = f"It waits for a call of {first.description}"
    text += ", which runs" if first.has_begun else ""
    text += "".join(f"; {count} of {label}" for label, count in others.items())
    if first.has_begun and first.line.thread:
        text += f". This is where it is:\n{_threads.stack_of(first.line.thread, has_ended=False)}"
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
        _deferred_errors.say([error])
    _deferred_errors.say(_deferred_errors.take())


def _wait() -> None:
    patience, later = _NOTICES
    while unfinished := wait_for(sys.maxsize, patience):
        _deferred_errors.write(
            "the process ends when the calls have ended that nobody has waited for "
            f"(wait=False), or at Ctrl-C. {described(unfinished)}"
        )
        patience = later


def _give_up() -> None:
    dropped = abandon()
    counts = collections.Counter(call.line.label for call in dropped)
    left = ", ".join(f"{count} of {label}" for label, count in counts.items())
    _deferred_errors.write(
        f"Ctrl-C: the process ends without waiting for the call that runs; calls that were never "
        f"made: {left or 'none'}."
    )


USUAL_SIZE = 16


def line_for(wait: object, queue: object, when_full: object) -> Line | None:
    """A new line for the calls of a function, or None where programs wait for them.

    Args:
      wait: as in `hostcall.declare`.
      queue: likewise.
      when_full: likewise.

    Raises:
      TypeError: when `wait` is no bool.
      ValueError: when `queue` is no positive number, there is no such `when_full`, or programs wait
        and one of the two is given.
    """
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
                    f"hostcall: {name}={value!r} is for calls that nobody waits for. Write "
                    f"wait=False, {name}={value!r}, or take it away."
                )
        return None
    if queue is None:
        return Line(USUAL_SIZE, str(when_full))
    if not isinstance(queue, numbers.Integral) or isinstance(queue, bool) or queue <= 0:
        raise ValueError(f"hostcall: queue={queue!r} is no positive number of calls.")
    return Line(int(queue), str(when_full))


# For functions that are declared anew wherever they are called, as by `hostcall.jax.call`.
_lines_of: weakref.WeakValueDictionary[tuple[object, ...], _LineOf] = weakref.WeakValueDictionary()


class _LineOf(Line):
    """A line that keeps its function, whose id nothing else can have meanwhile."""

    def __init__(self, function: Callable[..., Any], like: Line) -> None:
        super().__init__(like.size, like.when_full)
        self.function = function


def line_of(
    function: Callable[..., Any], wait: object, queue: object, when_full: object
) -> Line | None:
    """As `line_for`, and the same one each time for the same function."""
    new = line_for(wait, queue, when_full)
    if new is None:
        return None
    key = id(function), new.size, new.when_full
    known = _lines_of.get(key)
    if known is None:
        known = _lines_of[key] = _LineOf(function, new)
    return known


def marking(line: Line, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose calls it is known in this process that nobody waits for them."""

    def note(thread: int) -> None:
        line.thread = thread

    return noting_thread(function, note)


def handing_over(
    line: Line, function: Callable[..., Any], provider: Any, description: str, label: str
) -> Callable[..., None]:
    """What a program calls in the place of a function whose calls it does not wait for.

    Args:
      line: the calls of the function.
      function: makes a call: the user's function, on an executor and within its timeout where there
        are such.
      provider: gives the executor, or None.
      description: the function and the call, as errors name them.
      label: the function.

    Returns:
      A function that raises what earlier calls have raised.
    """
    line.label = label

    def hand_over(*args: Any) -> None:
        _deferred_errors.raise_all(_deferred_errors.take(line))
        queue = queue_of(provider)
        prepare(queue, provider)
        queue.put(Call(line, _interception.carried(function), args, description))

    return hand_over


def barrier(timeout: float | None = None) -> None:
    """Waits until all calls that were handed over before have ended.

    These are the calls of functions with `wait=False`, in TensorFlow's programs and JAX's. Errors
    that nobody was told of are raised here.

    Args:
      timeout: how many seconds to wait, or None.

    Raises:
      TimeoutError: when the time is over. The calls go on.
      RuntimeError: when one of these calls is the caller, which would wait for itself.
      Exception: what a call has raised, as the object that it was; several are raised as an
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
    if is_inside():
        raise RuntimeError(_deferred_errors.INSIDE)
    finish_programs()
    unfinished = wait_for(latest(), timeout)
    if unfinished:
        raise TimeoutError(
            f"hostcall.barrier() has waited for {timeout} s. {described(unfinished)}"
        )
    _deferred_errors.raise_all(_deferred_errors.take())
