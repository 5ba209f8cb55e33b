"""Callbacks that have to run where TensorFlow executes eagerly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hostcall._tf import eager_execution, gradient_tapes
from hostcall_runtime._threads import Call


def apart(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `function(*args, **kwargs)` returns, run in eager mode and where its tapes record.

    That is on another thread where this one builds a graph, or where TensorFlow has stopped
    recording on it, as while it runs a function: a tape would record nothing, silently.
    """
    if eager_execution.executing_eagerly() and not gradient_tapes.tapes_are_stopped():
        return function(*args, **kwargs)
    return Call(functools.partial(function, *args, **kwargs)).result(None)
