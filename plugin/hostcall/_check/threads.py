"""Checks that calls of several threads return what calls one by one return."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.facts import Finding, NotChecked, Suggestion
from hostcall._check.trial import Outcome, Trial, same

_THREADS, _CALLS = 8, 4

# The seconds from which on each thread makes one call.
_SLOW = 0.1

# For a call whose arrays NumPy's libraries add up in another order.
_ROUNDING = 1e-5

# Threads change places as often as they can.
_SWITCH_INTERVAL = 1e-6

# For all calls together, where one by one they would take less than a quarter of it: beyond it they
# wait for each other.
_SECONDS = 60.0

_OPTION = "concurrent=True"
_GAIN = (
    "calls of several threads return what one gets, so a program may make several at once, and go "
    "on meanwhile"
)
_CAUSE = "calls share a buffer, a cache or a library's handle, and take turns at any point"
_LINE = "with lock:    # lock = threading.Lock(), around what the calls share"


def threads(trial: Trial) -> Iterator[Outcome]:
    """Eight threads that call it at once get what one gets, where calls may overlap."""
    subject = trial.subject
    if not subject.outputs.dtypes or subject.declaration.line is not None:
        yield NotChecked("threads", "it has no results to compare")
        return
    if trial.is_spared:
        yield trial.spared("threads", f"{_THREADS * (_CALLS + 1)} calls")
        return
    if not trial.repeats:
        yield NotChecked("threads", "two calls do not return the same")
        return
    tried = trial.variants(_THREADS)
    if isinstance(tried, str):
        yield NotChecked("threads", tried)
        return
    samples = [one.sample for one in tried]
    wanted = [subject.arrays(one.called) for one in tried]
    found = _at_once(trial, samples, wanted)
    if subject.declaration.lets_overlap(subject.user_function):
        if found is not None:
            yield Finding("threads", found, _CAUSE, _LINE)
    elif found is not None:
        why = f"calls run one at a time, as {_OPTION} is not declared, and should not be: {found}"
        yield NotChecked("threads", why)
    elif subject.is_pure:
        yield Suggestion("threads", _GAIN, _OPTION)


def _at_once(
    trial: Trial, samples: Sequence[Sample], wanted: Sequence[list[np.ndarray]]
) -> str | None:
    """What goes wrong, in words, or None."""
    subject = trial.subject
    calls = _CALLS if trial.seconds < _SLOW else 1
    limit = max(_SECONDS, 4 * len(samples) * calls * trial.seconds)
    end = time.monotonic() + limit
    start = threading.Barrier(len(samples))
    wrong: list[str] = []

    def run(number: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait(limit)
        for _ in range(calls):
            called = subject.call(samples[number])
            if called.error is not None:
                wrong.append(f"with {_THREADS} threads a call raises {called.raised}")
                return
            got = subject.arrays(called)
            if not same(got, wanted[number], _ROUNDING):
                wrong.append(_difference(got, wanted[number]))
                return

    workers = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(samples))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
    if any(worker.is_alive() for worker in workers):
        return f"calls of {_THREADS} threads have not ended after {limit:.0f} seconds"
    return wrong[0] if wrong else None


def _difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> str:
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if not same([one], [other], _ROUNDING):
            return (
                f"with {_THREADS} threads result {index} is {lines.shown(one)}, and with one it is "
                f"{lines.shown(other)}"
            )
    return f"with {_THREADS} threads there are other results than with one"
