"""Who can still ask for the gradient of a recorded call: whoever holds its handle.

The handle leaves a program as one of the results that TensorFlow's tape keeps. Mostly it is a
tensor of its own, and then what the call has kept ends with that tensor. Out of the loops and
branches of plain graphs it comes inside a list or an optional, which cannot be looked into cheaply.
There, any call of a function with that op which was in flight when the handle was made may hold it,
for as long as a variant among its results lives. A call that fails, or has no such results, holds
nothing. Neither does a run of a v1 session once it has ended.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from hostcall._tf import eager_execution
from hostcall_runtime import _locks


class _FunctionCall:
    """A call of a function from eager code, or a run of a session.

    Attributes:
      tokens: those of the script ops in the function, and in all that it calls.
      handles: those that were made while it was in flight, and that no tensor is known to hold.
      in_flight: whether it has not ended.
      reasons: how many there are to think that it holds them: itself while it is in flight, and
        each variant among its results.
    """

    def __init__(self, tokens: frozenset[str]) -> None:
        self.tokens = tokens
        self.handles: set[int] = set()
        self.in_flight = True
        self.reasons = 1


class HandleOwners:
    """Tells when nobody holds a handle any more.

    Args:
      drop: is called with such a handle.
    """

    def __init__(self, drop: Callable[[int], None]) -> None:
        self._drop = drop
        self._lock = _locks.new_lock()
        self._in_flight: set[_FunctionCall] = set()
        # The calls that may hold a handle, for those that no tensor is known to hold.
        self._possible: dict[int, set[_FunctionCall]] = {}
        self._here = threading.local()

    def __len__(self) -> int:
        return len(self._possible)

    def note(self, handle: int, token: str) -> None:
        """To be called with a handle that is made now and may leave its program.

        Args:
          handle: the handle.
          token: of the op that makes it.
        """
        with self._lock:
            calls = {call for call in self._in_flight if token in call.tokens}
            for call in calls:
                call.handles.add(handle)
            self._possible[handle] = calls

    def forget(self, handle: int) -> None:
        """Stops asking who may hold a handle."""
        with self._lock:
            calls = self._possible.pop(handle, None)
            for call in calls or ():
                call.handles.discard(handle)

    def may_hold(self, handle: int) -> bool:
        """Whether somebody can ask for a handle again, apart from the program that made it."""
        with self._lock:
            calls = self._possible.get(handle)
            return calls is None or (bool(calls) and not any(call.in_flight for call in calls))

    def holds(self, handle: int) -> bool:
        """Whether a handle will be let go when the calls have ended that may hold it."""
        with self._lock:
            return bool(self._possible.get(handle))

    def run(self, tokens: frozenset[str], function: Callable[[], Any]) -> Any:
        """What `function` returns. It calls a function with these tokens and may hold handles."""
        call, outer = _FunctionCall(tokens), getattr(self._here, "call", None)
        try:
            self._here.call = call
            with self._lock:
                self._in_flight.add(call)
            return function()
        finally:
            self._here.call = outer
            call.in_flight = False
            with self._lock:
                self._in_flight.discard(call)
            self._release(call)

    def attach(self, tensors: Iterable[Any]) -> None:
        """Finds the handles in what a function or an op has returned, before the user has it."""
        if not self._possible:
            return
        for tensor in tensors:
            if not isinstance(tensor, eager_execution.EagerTensor):
                continue  # symbolic: a function is being traced that calls a recorded one
            if tensor.dtype == tf.int64 and tensor.shape.rank == 0:
                self._tie(tensor)
            elif tensor.dtype == tf.variant:
                self._suspect(tensor)

    def _tie(self, tensor: tf.Tensor) -> None:
        handle = int(tensor)
        if handle in self._possible:
            weakref.finalize(tensor, self._drop, handle).atexit = False
            self.forget(handle)  # afterwards, for Ctrl-C may come in between

    def _suspect(self, variant: Any) -> None:
        call = getattr(self._here, "call", None)
        if call is not None and call.handles:
            with self._lock:
                call.reasons += 1
            weakref.finalize(variant, self._release, call).atexit = False

    def _release(self, call: _FunctionCall) -> None:
        with self._lock:
            call.reasons -= 1
            if call.reasons or not call.handles:
                return
            over = []
            for handle in call.handles:
                calls = self._possible.get(handle)
                if calls is None:
                    continue  # Ctrl-C came while it was noted or forgotten
                calls.discard(call)
                if not calls:
                    del self._possible[handle]
                    over.append(handle)
        for handle in over:  # without the lock: what dies with a tape residual may be the user's
            self._drop(handle)
