"""Ctrl-C for programs that wait for calls on other threads: see csrc/runtime/interrupts.h."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence

from hostcall_runtime import _errors, _starters

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
        _starters.interrupt(main, came)
    numbers = []
    for number, callback_id, run, thread, begun in waiting:
        starter = _starters.starter_of(callback_id, run, thread)
        if starter.is_interrupted if starter is not None else thread == main and begun <= came:
            numbers.append(number)
    code, text = _errors.describe(KeyboardInterrupt()) if numbers else (0, "")
    return numbers, code, text, _starters.any_interrupted()
