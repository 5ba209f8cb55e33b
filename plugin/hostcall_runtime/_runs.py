"""Runs of programs: their starting threads and settings, and the runs that Ctrl-C ends.

A callback sees the settings of the thread that started its program: the context variables, NumPy's
`errstate` among them, and the per-thread settings of other libraries (`captures`). They have to be
carried over, since XLA runs large programs on its own threads, and hostcall may call on others.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import itertools
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hostcall_runtime import _errors, _library

# The providers of the thread pools on which the functions run that have led to this code.
executors_around: contextvars.ContextVar[frozenset[object]] = contextvars.ContextVar(
    "executors_around", default=frozenset()
)

# Functions that return the settings of the current thread: a function that returns a context in
# which another thread has the same.
captures: list[Callable[[], Callable[[], contextlib.AbstractContextManager[object]]]] = []

_numbers = itertools.count()


@dataclasses.dataclass(eq=False, slots=True)
class Starter:
    """A snapshot of the thread that starts a run; later starters have higher numbers."""

    context: contextvars.Context
    thread: int
    begun: int
    settings: Sequence[Callable[[], contextlib.AbstractContextManager[object]]] = ()
    program: RunningProgram | None = None
    number: int = dataclasses.field(default_factory=_numbers.__next__)
    is_interrupted: bool = False

    @classmethod
    def here(cls, program: RunningProgram | None = None) -> Starter:
        """Return a starter for a run that this thread starts now."""
        settings = [capture() for capture in captures]
        thread, now = threading.get_ident(), time.monotonic_ns()
        return cls(contextvars.copy_context(), thread, now, settings, program)

    def again(self) -> Starter:
        """Return the starter of a run that is part of this starter's run."""
        other = copy.copy(self)
        other.number = next(_numbers)
        return other

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `function` so that it sees these settings on any thread."""

        def call(*args: Any, **given: Any) -> object:
            # A context cannot be entered twice at the same time.
            return self.context.copy().run(self._call, function, args, given)

        return call

    def _call(self, function: Callable[..., Any], args: Any, given: Any) -> object:
        with contextlib.ExitStack() as stack:
            for applied in self.settings:
                stack.enter_context(applied())
            return function(*args, **given)


class RunningProgram:
    """A compiled program, which may have several runs at once; no other has its callbacks."""

    def __init__(self, callback_ids: Iterable[int]) -> None:
        for callback_id in callback_ids:
            _programs[callback_id] = self

    def starter(self, thread: int) -> Starter | None:
        """Return the starter of the run that a call on a thread belongs to."""
        # A call on one of XLA's threads does not tell its run. If several runs are under way, this
        # returns the starter of the latest one.
        starters = [starter for starter in [*_of_programs] if starter.program is self]
        own = [starter for starter in starters if starter.thread == thread]
        return max(own or starters, key=lambda starter: starter.number, default=None)


_programs: weakref.WeakValueDictionary[int, RunningProgram] = weakref.WeakValueDictionary()

# The starters of the programs that run.
_of_programs: set[Starter] = set()

# Notes of the runs that have a number. C++ adds and removes them. A note is a list of the context,
# thread and time in which the run began, and then its starter, which is made when it is asked for.
runs: dict[int, list[Any]] = {}


def begin(run: int, of: int = 0) -> None:
    """Note a new run, which may be part of another one, until C++ removes it at its end."""
    outer = _starter_of_run(of)
    runs[run] = [None, 0, 0, Starter.here() if outer is None else outer.again()]


def _noted(note: list[Any]) -> Starter:
    if len(note) == 3:
        note.append(Starter(*note[:3]))  # of two threads' starters, the first stays
    starter: Starter = note[3]
    return starter


def _starter_of_run(run: int) -> Starter | None:
    note = runs.get(run)
    return None if note is None else _noted(note)


def _under_way() -> list[Starter]:
    return [*_of_programs, *map(_noted, [*runs.values()])]


def starter_of(callback_id: int, run: int, thread: int) -> Starter | None:
    """Return the starter of a call's program, or None if it is unknown; see `bind`."""
    starter = _starter_of_run(run)
    if starter is None and (program := _programs.get(callback_id)) is not None:
        return program.starter(thread)
    return starter


def interrupt(thread: int | None, came: int) -> None:
    """Mark the programs that a thread ran when Ctrl-C came: Ctrl-C ends them."""
    for starter in _under_way():
        starter.is_interrupted |= starter.thread == thread and starter.begun <= came


def bind(
    function: Callable[..., Any], callback_id: int, run: int, thread: int
) -> Callable[..., Any]:
    """Wrap `function` for a call on another thread, with the settings of the program's starter."""
    return _bound(function, starter_of(callback_id, run, thread))


def bind_to_run(function: Callable[..., Any], run: int) -> Callable[..., Any]:
    """Wrap `function` so that it sees the settings of a run's starter, if the run is known."""
    return _bound(function, _starter_of_run(run))


def _bound(function: Callable[..., Any], starter: Starter | None) -> Callable[..., Any]:
    if starter is None or starter.thread == threading.get_ident():
        return function
    return starter.bound(function)


_runtime = _library.load("hostcall_runtime._runtime")


@contextmanager
def running(program: RunningProgram) -> Iterator[None]:
    """Keep a program known as running; at the end, drop early calls that it left when it failed."""
    starter = Starter.here(program)
    run = _runtime.begin_run()
    try:
        _of_programs.add(starter)
        yield
    finally:
        _of_programs.discard(starter)
        _runtime.end_run(run)


# From C++'s HostCall: its number, callback id, run and thread; and the time at which it began.
Waiting = tuple[int, int, int, int, int]


def choose(waiting: Sequence[Waiting], came: int) -> tuple[list[int], int, str, bool]:
    """Choose the calls to give up after Ctrl-C: those of the programs that it ends."""
    # These are the main thread's programs, unless SIGINT has another handler: the effect of a
    # handler is known only after it has run, and it does not run before. Programs that began after
    # `came`, 0 if it was reported before, go on: if the main thread ran Python, it may have gone on
    # to others since. Returned are the numbers of the calls, the status code and the text that
    # their programs fail with, and whether to ask again soon: XLA may begin more calls before a
    # program fails.
    main = threading.main_thread().ident
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        came = 0
    if came:
        interrupt(main, came)
    numbers = []
    for number, callback_id, run, thread, begun in waiting:
        starter = starter_of(callback_id, run, thread)
        if starter.is_interrupted if starter is not None else thread == main and begun <= came:
            numbers.append(number)
    code, text = _errors.describe(KeyboardInterrupt()) if numbers else (0, "")
    return numbers, code, text, any(starter.is_interrupted for starter in _under_way())
