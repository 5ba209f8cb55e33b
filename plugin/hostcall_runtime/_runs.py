"""Runs of programs: who started them, in which settings, and which ones Ctrl-C ends.

A function sees the context variables of who started the program that calls it, NumPy's `errstate`
among them, and what other libraries keep for each thread (`captures`). XLA runs large programs on
threads of its own, and calls may be handed to threads of hostcall's.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import itertools
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from hostcall_runtime import _errors, _library


class Settings(Protocol):
    """What a library keeps for a thread."""

    def applied(self) -> contextlib.AbstractContextManager[object]:
        """Inside of it another thread has the same."""


# Functions that return those of this thread.
captures: list[Callable[[], Settings]] = []


_numbers = itertools.count()


class Starter:
    """A thread as it is now.

    Attributes:
      program: what it runs, where that is known.
      thread: its identifier.
      number: of the starters, in their order.
      begun: when that was, by `time.monotonic_ns()`.
      is_interrupted: whether Ctrl-C ends the program.
    """

    __slots__ = ("_context", "_settings", "begun", "is_interrupted", "number", "program", "thread")

    def __init__(self, program: Program | None = None) -> None:
        self.program = program
        self.thread = threading.get_ident()
        self.number = next(_numbers)
        self.begun = time.monotonic_ns()
        self.is_interrupted = False
        self._context = contextvars.copy_context()
        self._settings = [capture() for capture in captures]

    def again(self) -> Starter:
        """The starter of a run that is a part of this one's."""
        other = copy.copy(self)
        other.number = next(_numbers)
        return other

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which sees these settings on whatever thread it is called."""

        def call(*args: Any, **given: Any) -> Any:
            # Nobody can be in one context twice at the same time.
            return self._context.copy().run(self._call, function, args, given)

        return call

    def _call(self, function: Callable[..., Any], args: Any, given: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for settings in self._settings:
                stack.enter_context(settings.applied())
            return function(*args, **given)


class Program:
    """A compiled program, which may run several times at once.

    Args:
      callback_ids: of the callbacks that it calls, and no other program does.
    """

    def __init__(self, callback_ids: Iterable[int]) -> None:
        for callback_id in callback_ids:
            _programs[callback_id] = self

    def starter(self, thread: int) -> Starter | None:
        """Who has started the run that a call is of.

        A call that comes on a thread of XLA's does not tell its run. Where several run at once, it
        is the last one.

        Args:
          thread: the one on which the call came, where Python knows it; or 0.
        """
        starters = [starter for starter in [*under_way] if starter.program is self]
        own = [starter for starter in starters if starter.thread == thread]
        return max(own or starters, key=lambda starter: starter.number, default=None)


_programs: weakref.WeakValueDictionary[int, Program] = weakref.WeakValueDictionary()

# Of all programs that run.
under_way: set[Starter] = set()

# Of the runs that TensorFlow numbers.
runs: dict[int, Starter] = {}


def begin(run: int, of: int = 0) -> None:
    """A run begins, which C++ takes out of these tables when it has ended.

    Args:
      run: its number.
      of: that of the run it is a part of; any other where this thread starts it.
    """
    outer = runs.get(of)
    starter = Starter() if outer is None else outer.again()
    runs[run] = starter
    under_way.add(starter)


def starter_of(callback_id: int, run: int, thread: int) -> Starter | None:
    """Who has started the program of a call, None where nobody knows; see `bind`."""
    starter = runs.get(run)
    if starter is None and (program := _programs.get(callback_id)) is not None:
        return program.starter(thread)
    return starter


def interrupt(thread: int | None, came: int) -> None:
    """Ctrl-C ends the programs that a thread ran when it came."""
    for starter in [*under_way]:
        starter.is_interrupted |= starter.thread == thread and starter.begun <= came


def any_interrupted() -> bool:
    """Whether such a program has not ended yet."""
    return any(starter.is_interrupted for starter in [*under_way])


def bind(function: Callable[..., Any], callback_id: int, run: int, thread: int) -> Any:
    """`function` for a call on another thread, with the settings of who started the program.

    Args:
      function: what is to be called.
      callback_id: of the callback.
      run: the number of the run.
      thread: as for `Program.starter`.
    """
    return _bound(function, starter_of(callback_id, run, thread))


def bind_to_run(function: Callable[..., Any], run: int) -> Callable[..., Any]:
    """`function`, with the settings of who started the run of that number, if there is one."""
    return _bound(function, runs.get(run))


def _bound(function: Callable[..., Any], starter: Starter | None) -> Callable[..., Any]:
    if starter is None or starter.thread == threading.get_ident():
        return function
    return starter.bound(function)


_runtime = _library.load("hostcall_runtime._runtime")


@contextmanager
def running(program: Program) -> Iterator[None]:
    """Inside of it a program runs, to its end.

    Of one that fails nobody takes the results of calls that have begun early.
    """
    run = _runtime.begin_run()
    starter = Starter(program)
    try:
        under_way.add(starter)
        yield
    finally:
        under_way.discard(starter)
        _runtime.end_run(run)


# As HostCall has them: a number, the callback's id, the run and the thread; and when it has begun.
Waiting = tuple[int, int, int, int, int]


def choose(waiting: Sequence[Waiting], came: int) -> tuple[list[int], int, str, bool]:
    """Which calls to give up when Ctrl-C has come: those of the programs that it ends.

    These are the programs of the main thread, where nobody has another handler for it: what such a
    handler does is known when it has run, and it does not run before. And only those that had begun
    by then: if the main thread ran Python, it may have gone on to other programs since.

    Args:
      waiting: the calls.
      came: when it has come, by `time.monotonic_ns()`; 0 where that was told before.

    Returns:
      The numbers of the calls, the status code and the text that their programs fail with, and
      whether to ask again soon: XLA may begin more calls of a program before it lets it fail.
    """
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
    return numbers, code, text, any_interrupted()
