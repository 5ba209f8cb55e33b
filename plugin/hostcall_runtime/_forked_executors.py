"""Executors in a process that was forked: those of the parent are there, and their threads not."""

from __future__ import annotations

import os
import threading

from hostcall_runtime import _dask_calls
from hostcall_runtime._executor_types import Executor

_is_forked = False


def _after_fork() -> None:
    global _is_forked
    _is_forked = True


os.register_at_fork(after_in_child=_after_fork)


def is_left_behind(executor: Executor) -> bool:
    """Whether an executor was made before this process was forked, and so runs nothing."""
    if not _is_forked:
        return False
    if _dask_calls.is_of_parent(executor):
        return True
    candidates = [
        getattr(executor, "_executor_manager_thread", None),  # of the pools of processes
        *(getattr(executor, "_threads", None) or ()),
    ]
    threads = [thread for thread in candidates if isinstance(thread, threading.Thread)]
    return bool(threads) and not any(thread.is_alive() for thread in threads)
