"""Ctrl-C for programs that wait for calls on other threads: see csrc/runtime/interrupts.h."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable

from hostcall_runtime import _errors, _starters

# As HostCall has them: a number, the callback's id, the run and the thread.
Waiting = tuple[int, int, int, int]


def choose(waiting: Iterable[Waiting]) -> tuple[list[int], int, str]:
    """Which calls to give up when Ctrl-C has come: those of the programs that it ends.

    These are the programs of the main thread, where nobody has another handler for it: what such a
    handler does is known when it has run, and it does not run before.

    Args:
      waiting: the calls.

    Returns:
      The numbers of the calls, and the status code and the text that their programs fail with.
    """
    numbers = []
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        main = threading.main_thread().ident
        numbers = [
            number
            for number, callback_id, run, thread in waiting
            if _starters.thread_of(callback_id, run, thread) == main
        ]
    code, text = _errors.describe(KeyboardInterrupt()) if numbers else (0, "")
    return numbers, code, text
