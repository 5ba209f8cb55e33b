"""Which workers of a pool of processes have ended."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from hostcall_runtime._executor_types import Executor, Future

# Seconds for an executor to end its workers, which takes milliseconds.
_PATIENCE = 5.0

# How a pool that breaks ends the workers that are left: Python's, and loky's.
_BY_THE_POOL = (-signal.SIGTERM, -signal.SIGKILL)


def workers_of(executor: Executor) -> dict[int, Any]:
    """The workers that an executor has now, by their processes."""
    workers = getattr(executor, "_processes", None)
    return dict(workers) if isinstance(workers, Mapping) else {}


def behind(executor: Executor, error: Exception) -> Exception:
    """Why an executor does not take a call; of one that breaks, the error is of its closed pipe."""
    broken = getattr(executor, "_broken", False)
    if isinstance(error, OSError) and broken:
        return BrokenProcessPool(str(broken))
    return error


def end_forgotten(executor: Executor, future: Future) -> None:
    """Ends a call that a pool has taken while it broke, and forgotten.

    Python's thread that manages a pool gives up the calls that it knows of then, and ends. One that
    comes in between would be waited for, for ever.
    """
    manager = getattr(executor, "_executor_manager_thread", None)
    if not isinstance(manager, threading.Thread) or manager.is_alive():
        return
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has ended meanwhile
        future.set_exception(BrokenProcessPool("it broke when it took the call"))


def told(executor: Executor, workers: dict[int, Any]) -> str:
    """Which have ended of themselves, and how; "" where nobody knows.

    Args:
      executor: an executor that has broken.
      workers: those that it had when it took the call; some forget them as they break.
    """
    if not _is_over(executor):
        return ""
    workers = {**workers, **workers_of(executor)}
    codes = {pid: getattr(worker, "exitcode", None) for pid, worker in workers.items()}
    for ignored in (_BY_THE_POOL, _BY_THE_POOL[:1], ()):
        how = {pid: code for pid, code in codes.items() if code not in (None, *ignored)}
        if how:
            break
    return " ".join(f"Its worker process {pid} {_manner(code)}." for pid, code in how.items())


def _is_over(executor: Executor) -> bool:
    """Whether a broken pool has seen how its workers ended; ends those that it has not seen.

    Python before 3.12 does not expect a call, and so a worker for it, while its manager ends the
    others: the new one is left, or the manager fails and leaves more. At its exit the process would
    wait for them, for ever.
    """
    manager = getattr(executor, "_executor_manager_thread", None)
    if not isinstance(manager, threading.Thread):
        return True
    # It ends as soon as it knows how each has ended, which two threads must not ask at once.
    manager.join(_PATIENCE)
    if manager.is_alive():
        return False
    with getattr(executor, "_shutdown_lock", contextlib.nullcontext()):  # no call comes in between
        for worker in workers_of(executor).values():
            if worker.is_alive():
                worker.terminate()
    return True


def _manner(code: Any) -> str:
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except (TypeError, ValueError):
        return f"has ended with status {code}"
