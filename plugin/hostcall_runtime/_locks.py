"""Locks of the tables that all threads share."""

from __future__ import annotations

import os
import threading


def new_lock() -> threading.RLock:
    """A lock for the life of the process.

    Reentrant: Python may collect garbage anywhere, and a `__del__` of the user's may call back.
    Free in a forked child, whatever the parent's other threads were doing.
    """
    lock = threading.RLock()
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock
