"""Ctrl-C for programs that wait for calls on other threads: see csrc/runtime/interrupts.h."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

from hostcall_runtime import _errors, _starters

# As HostCall has them: a number, the callback's id, the run and the thread.
Waiting = tuple[int, int, int, int]


def choose(waiting: Sequence[Waiting], came: bool) -> tuple[list[int], int, str, bool]:
    """Which calls to give up when Ctrl-C has come: those of the programs that it ends.

    These are the programs of the main thread, where nobody has another handler for it: what such a
    handler does is known when it has run, and it does not run before.

    Args:
      waiting: the calls.
      came: whether it has come just now, and not before.

    Returns:
      The numbers of the calls, the status code and the text that their programs fail with, and
      whether to ask again soon: XLA may begin more calls of a program before it lets it fail.
    """
    main = threading.main_thread().ident
    came = came and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if came:
        _starters.interrupt(main)
    numbers = []
    for number, callback_id, run, thread in waiting:
        starter = _starters.starter_of(callback_id, run, thread)
        if starter.is_interrupted if starter is not None else came and thread == main:
            numbers.append(number)
    code, text = _errors.describe(KeyboardInterrupt()) if numbers else (0, "")
    return numbers, code, text, _starters.any_interrupted()
