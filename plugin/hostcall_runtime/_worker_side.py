"""What a worker of an executor runs: the user's function, and a look at what it sends back.

Executors differ in what they make of an exception, or of a result that cannot be sent: an error of
theirs, a dead worker, a call that never ends. So a worker sends what is certain to arrive: a
result, or an answer that says why there is none. A future that fails is always the executor's.

Workers may have no hostcall: this imports nothing of it.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

# Begins an answer, which is a tuple: any worker can make and send one.
MARK = "hostcall: no result"
# What follows: the exception as bytes and its traceback; what could not be sent, why, and the
# traceback or ""; who has begun the call before; a result or an answer, and when the function was
# called and has returned, by the clock of the worker's machine.
RAISED, UNSENDABLE, BEGUN, RAN = "raised", "unsendable", "begun", "ran"

_PLAIN = (np.generic, int, float, complex, str, bytes, type(None))


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Calls the function; returns its result, or an answer."""
    try:
        value = function(*map(_own, args))
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # from the function on
        text = "".join(traceback.format_exception(type(error), error, trace))
        try:
            return MARK, RAISED, _sent(error), text
        except Exception as why:
            return MARK, UNSENDABLE, f"raised {type(error).__name__}", repr(why), text
    try:
        if not _is_plain(value):
            _sent(value)
    except Exception as why:
        return MARK, UNSENDABLE, f"returned a {type(value).__name__}", repr(why), ""
    return value


def run_once_on_dask(function: Callable[..., Any], *args: Any) -> Any:
    """The same in a worker of Dask's, unless another one has begun the call."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    this = {"address": worker.address, "by": f"{worker.address} (process {os.getpid()})"}
    key = worker.get_current_task()
    earlier = sync(worker.loop, worker.scheduler.hostcall_begin, key=key, **this)
    if earlier is not None:
        return MARK, BEGUN, earlier
    began = time.monotonic()
    value = run(function, *args)
    return MARK, RAN, value, began, time.monotonic()


def _own(value: Any) -> Any:
    """The value, with arrays that the function may write to: some executors lend theirs."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(_own, value))
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return value


def _is_plain(value: Any) -> bool:
    """Whether any executor can send it, as is so of almost all results."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    return isinstance(value, _PLAIN)


def _sent(value: Any) -> bytes:
    """The value as bytes that can be read."""
    # The executors that send by cloudpickle's rules have imported it.
    packed: bytes = sys.modules.get("cloudpickle", pickle).dumps(value)
    pickle.loads(packed)
    return packed
